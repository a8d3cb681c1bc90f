//! Until when a certificate is valid: the one field of X.509 that is needed, read by hand.

use jiff::{Timestamp, civil::DateTime, tz::Offset};

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// `notAfter` of a DER certificate; `None` where it cannot be read.
pub fn ends(certificate: &[u8]) -> Option<Timestamp> {
    let (certificate, _) = element(certificate, SEQUENCE)?;
    let (mut fields, _) = element(certificate, SEQUENCE)?;
    if let Some((_, rest)) = element(fields, VERSION) {
        fields = rest;
    }
    // Serial number, signature algorithm and issuer.
    for _ in 0..3 {
        (_, _, fields) = any(fields)?;
    }
    let (validity, _) = element(fields, SEQUENCE)?;
    let (_, _, rest) = any(validity)?;
    let (tag, time, _) = any(rest)?;
    let text = std::str::from_utf8(time).ok()?;
    let text = match tag {
        GENERALIZED_TIME => text.to_owned(),
        // RFC 5280 §4.1.2.5.1: two digits of a year between 1950 and 2049.
        UTC_TIME => format!("{}{text}", if text.as_bytes().first()? >= &b'5' { "19" } else { "20" }),
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%SZ", text).ok()?;
    Offset::UTC.to_timestamp(time).ok()
}

/// The content of the first element, which must have this tag, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    any(bytes).filter(|(found, _, _)| *found == tag).map(|(_, content, rest)| (content, rest))
}

/// Tag and content of the first element, and what follows it.
fn any(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, bytes) = bytes.split_first()?;
    let (first, mut bytes) = bytes.split_first()?;
    let mut length = usize::from(*first);
    if *first & 0x80 != 0 {
        length = 0;
        // More bytes than a certificate of four gigabytes needs make no sense.
        for _ in 0..usize::from(first & 0x7f).min(5) {
            let (digit, rest) = bytes.split_first()?;
            length = length.checked_mul(256)?.checked_add(usize::from(*digit))?;
            bytes = rest;
        }
    }
    let (content, rest) = bytes.split_at_checked(length)?;
    Some((*tag, content, rest))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn the_end_of_a_certificate_in_both_spellings() {
        for (year, expected) in
            [(2026, "2026-03-04T00:00:00Z"), (1999, "1999-03-04T00:00:00Z"), (2049, "2049-03-04T00:00:00Z"), (2061, "2061-03-04T00:00:00Z")]
        {
            let mut params = CertificateParams::new(["a.test".to_owned()]).unwrap();
            params.not_before = date_time_ymd(1990, 1, 1);
            params.not_after = date_time_ymd(year, 3, 4);
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            assert_eq!(ends(certificate.der()), Some(expected.parse().unwrap()));
            for length in 0..certificate.der().len() {
                assert_eq!(ends(&certificate.der()[..length]), None, "cut at {length}");
            }
        }
        assert_eq!(ends(b"not a certificate"), None);
        assert_eq!(ends(&[0x30, 0xff, 1, 2, 3]), None);
    }
}
