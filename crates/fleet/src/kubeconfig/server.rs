//! The server URL of a kubeconfig, reduced to host and port.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::Uri;
use http::uri::Scheme;
use rustls::pki_types::ServerName;

use super::Rejection;

const HTTPS_PORT: u16 = 443;
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// A host, either a DNS name or an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A lower-case DNS name without a trailing dot.
    Name(String),
    /// An address; unusual spellings of IPv4 (`0x7f.1`, `2130706433`, `0177.0.0.1`) are already resolved.
    Address(IpAddr),
}

impl Host {
    /// Reads a host as it stands in a URL, IPv6 with or without brackets. `None` when it is neither a name nor an address.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(inner) = text.strip_prefix('[') {
            return inner.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(|address| Self::Address(address.into()));
        }
        if text.contains(':') {
            return text.parse::<Ipv6Addr>().ok().map(|address| Self::Address(address.into()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        // Whatever ends in a number is an IPv4 address to the system's resolver, never a name.
        if name.rsplit('.').next().is_some_and(is_number) {
            return legacy_ipv4(&name).map(|address| Self::Address(address.into()));
        }
        let label_ok = |label: &str| {
            !label.is_empty() && label.len() <= MAX_LABEL && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        (name.len() <= MAX_NAME && name.split('.').all(label_ok)).then_some(Self::Name(name))
    }
}

impl Host {
    /// The name or address a server certificate must carry for this host.
    pub(super) fn tls_name(&self) -> Option<ServerName<'static>> {
        match self {
            Self::Name(name) => ServerName::try_from(name.clone()).ok(),
            Self::Address(address) => Some(ServerName::IpAddress((*address).into())),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// Host and port of an API server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Server {
    /// The host to connect to.
    pub host: Host,
    /// The TCP port.
    pub port: u16,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Server {
    /// Accepts `https://HOST[:PORT][/]` and nothing more.
    pub(super) fn from_url(url: &str) -> Result<Self, Rejection> {
        // The URL type drops a fragment silently.
        if url.contains('#') {
            return Err(Rejection::BadUrl);
        }
        let uri: Uri = url.parse().map_err(|_| Rejection::BadUrl)?;
        match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => {}
            Some(_) => return Err(Rejection::NotHttps),
            None => return Err(Rejection::BadUrl),
        }
        let authority = uri.authority().ok_or(Rejection::BadUrl)?;
        if authority.as_str().contains('@') || !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(Rejection::BadUrl);
        }
        let host = Host::parse(authority.host()).ok_or(Rejection::BadUrl)?;
        let port = match authority.as_str().strip_prefix(authority.host()) {
            Some("") => HTTPS_PORT,
            Some(rest) => rest.strip_prefix(':').and_then(|port| port.parse().ok()).ok_or(Rejection::BadUrl)?,
            None => return Err(Rejection::BadUrl),
        };
        if port == 0 {
            return Err(Rejection::BadUrl);
        }
        Ok(Self { host, port })
    }
}

fn is_number(label: &str) -> bool {
    label
        .strip_prefix("0x")
        .map_or_else(|| !label.is_empty() && label.bytes().all(|b| b.is_ascii_digit()), |hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// The rules of `inet_aton(3)`: one to four parts, each decimal, `0` octal or `0x` hexadecimal; the last part fills what is left.
fn legacy_ipv4(text: &str) -> Option<Ipv4Addr> {
    let parts = text.split('.').map(legacy_number).collect::<Option<Vec<u32>>>()?;
    let (last, leading) = parts.split_last()?;
    let free_bits = 32_u32.checked_sub(8 * u32::try_from(leading.len()).ok()?).filter(|bits| *bits > 0)?;
    if free_bits < 32 && *last >> free_bits != 0 {
        return None;
    }
    let mut address = *last;
    for (part, shift) in leading.iter().zip([24, 16, 8]) {
        address |= u32::from(u8::try_from(*part).ok()?) << shift;
    }
    Some(Ipv4Addr::from(address))
}

fn legacy_number(text: &str) -> Option<u32> {
    let digits_only = |digits: &str, radix| {
        digits.bytes().all(|b| char::from(b).is_digit(radix)).then(|| u32::from_str_radix(digits, radix).ok()).flatten()
    };
    if let Some(hex) = text.strip_prefix("0x") {
        return if hex.is_empty() { Some(0) } else { digits_only(hex, 16) };
    }
    match text.strip_prefix('0') {
        Some("") => Some(0),
        Some(octal) => digits_only(octal, 8),
        None => digits_only(text, 10),
    }
}
