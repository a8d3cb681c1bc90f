//! Packs and seals the content of a state Secret.

use std::io::{Read, Write};

use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};
use flate2::{Compression, read::DeflateDecoder, write::DeflateEncoder};

/// Bytes of the nonce in front of the sealed text.
const NONCE: usize = 24;
/// Most bytes a state Secret may unpack to; sealed ones of ours stay far below.
const MAX_UNPACKED: u64 = 32 << 20;

/// Why the content of a state Secret cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Another key, another place, or damaged.
    #[error("it was not sealed here")]
    NotSealedHere,
    /// It unpacks to more than any state needs, or to nothing that can be read.
    #[error("its content cannot be read")]
    Unreadable,
}

/// Packs and seals `plain` for `place`: what is sealed for one place opens in no other.
pub fn seal(key: &[u8; 32], place: &str, plain: &[u8]) -> Result<Vec<u8>, SealError> {
    let mut deflate = DeflateEncoder::new(Vec::new(), Compression::fast());
    let packed = deflate.write_all(plain).and_then(|()| deflate.finish()).map_err(|_| SealError::Unreadable)?;
    let nonce: [u8; NONCE] = rand::random();
    let payload = Payload { msg: &packed, aad: place.as_bytes() };
    let sealed = cipher(key).encrypt(&XNonce::from(nonce), payload).map_err(|_| SealError::Unreadable)?;
    Ok([&nonce[..], &sealed].concat())
}

/// Opens and unpacks what [`seal`] made.
pub fn open(key: &[u8; 32], place: &str, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
    let (nonce, text) = sealed.split_first_chunk::<NONCE>().ok_or(SealError::NotSealedHere)?;
    let payload = Payload { msg: text, aad: place.as_bytes() };
    let packed = cipher(key).decrypt(&XNonce::from(*nonce), payload).map_err(|_| SealError::NotSealedHere)?;
    let mut plain = Vec::new();
    DeflateDecoder::new(&*packed).take(MAX_UNPACKED + 1).read_to_end(&mut plain).map_err(|_| SealError::Unreadable)?;
    if plain.len() as u64 > MAX_UNPACKED { Err(SealError::Unreadable) } else { Ok(plain) }
}

fn cipher(key: &[u8; 32]) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(&(*key).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [7; 32];

    #[test]
    fn what_was_sealed_opens_in_its_place_only() {
        let plain = b"state ".repeat(1000);
        let sealed = seal(&KEY, "a/objects-0", &plain).unwrap();
        assert!(sealed.len() < plain.len() / 10, "packed");
        assert_eq!(open(&KEY, "a/objects-0", &sealed), Ok(plain.clone()));
        assert_ne!(seal(&KEY, "a/objects-0", &plain).unwrap(), sealed, "a nonce of its own");
        for (what, key, place, text) in [
            ("another place", KEY, "b/objects-0", sealed.clone()),
            ("another key", [8; 32], "a/objects-0", sealed.clone()),
            ("cut", KEY, "a/objects-0", sealed[..sealed.len() - 1].to_vec()),
            ("nothing", KEY, "a/objects-0", Vec::new()),
            ("a nonce alone", KEY, "a/objects-0", sealed[..NONCE].to_vec()),
            ("a flipped bit", KEY, "a/objects-0", sealed.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at == 40)).collect()),
        ] {
            assert_eq!(open(&key, place, &text), Err(SealError::NotSealedHere), "{what}");
        }
    }

    #[test]
    fn content_that_unpacks_to_too_much_is_refused() {
        let sealed = seal(&KEY, "p", &vec![0; 33 << 20]).unwrap();
        assert_eq!(open(&KEY, "p", &sealed), Err(SealError::Unreadable));
    }
}
