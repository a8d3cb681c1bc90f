//! Standard base64 with the leniency of Go's decoder, which wrote and reads these texts.

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

/// Padding is required, left-over bits in the last character are not looked at.
const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true).with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// Decodes `text`, skipping line breaks anywhere in it. `None` when it is not base64.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let is_break = |byte: &u8| matches!(byte, b'\r' | b'\n');
    if text.iter().any(is_break) {
        let joined: Vec<u8> = text.iter().copied().filter(|byte| !is_break(byte)).collect();
        return ENGINE.decode(joined).ok();
    }
    ENGINE.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn decodes_as_go_does() {
        assert_eq!(decode(b"aGVsbG8="), Some(b"hello".to_vec()));
        assert_eq!(decode(b"aGVs\r\nbG8=\n"), Some(b"hello".to_vec()), "line breaks are skipped");
        assert_eq!(decode(b"aGVsbG9="), Some(b"hello".to_vec()), "left-over bits are not looked at");
        assert_eq!(decode(b"aGVsbG8"), None, "padding is required");
        assert_eq!(decode(b"aGVs bG8="), None);
        assert_eq!(decode(b""), Some(Vec::new()));
    }
}
