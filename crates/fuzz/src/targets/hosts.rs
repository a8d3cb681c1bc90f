//! Spellings of addresses: whatever way a denied one is written, it is denied. The input is an address and how to write it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Result, ensure};
use holdfast_fleet::kubeconfig::{Host, HostRule, ServerPolicy, parse};

use super::kubeconfig::with_server;
use crate::{Target, cost::within};

/// IPv4 addresses in all their spellings.
pub const TARGET: Target =
    Target { name: "hosts", seeds, words: &["\u{0}", "\u{1}", "\u{7f}", "\n", "0", "8", "A", "a", "\t\t", "\u{3}\u{4}\u{5}"], check };

fn seeds() -> Vec<Vec<u8>> {
    vec![vec![0, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0], vec![1, 9, 9, 169, 254, 3, 1, 2, 3, 1, 1], vec![4, 8, 8, 8, 8, 2, 2, 2, 2, 1, 2]]
}

fn check(input: &[u8]) -> Result<()> {
    let mut bytes = input.iter().copied();
    let mut next = || bytes.next().unwrap_or_default();
    let (network, [a, b, c, d]) = (next() % 5, [next(), next(), next(), next()]);
    let (address, is_denied) = match network {
        0 => (Ipv4Addr::new(127, b, c, d), true),
        1 => (Ipv4Addr::new(169, 254, c, d), true),
        2 => (Ipv4Addr::new(0, b, c, d), true),
        3 => (Ipv4Addr::new(224 + a % 16, b, c, d), true),
        // Only the operator says anything about these.
        _ => (Ipv4Addr::new(10, b, c, d), false),
    };
    let spelling = spell(address, [next(), next(), next(), next()], next(), next());
    let config = with_server(&format!("\"https://{spelling}:6443\""))?;
    let judge = |policy: &ServerPolicy| within(1 << 23, || parse(config.as_bytes(), policy));

    match Host::parse(&spelling) {
        Some(Host::Name(name)) => anyhow::bail!("{spelling} is {address}, read as the name {name}"),
        Some(Host::Address(IpAddr::V4(read))) => ensure!(read == address, "{spelling} is {address}, read as {read}"),
        Some(Host::Address(IpAddr::V6(_))) | None => {}
    }
    let by_default = judge(&ServerPolicy::default())?;
    ensure!(!is_denied || by_default.is_err(), "{spelling} is {address} and accepted");
    // A narrow rule about an address beats a wide one, however either is spelt.
    let rule = |text: String| text.parse::<HostRule>();
    let denied = ServerPolicy::new(vec![rule("0.0.0.0/0".to_owned())?], vec![rule(format!("{address}/32"))?]);
    ensure!(judge(&denied)?.is_err(), "{spelling} is {address}, denied by a rule, and accepted");
    if let Some(host) = Host::parse(&spelling) {
        let allowed = ServerPolicy::new(vec![rule(address.to_string())?], vec![rule("0.0.0.0/0".to_owned())?]);
        ensure!(allowed.allows(&host), "{spelling} is {address}, allowed by a rule, and refused");
    }
    Ok(())
}

/// Writes an address as one to four numbers of any base, or within an IPv6 address, with or without a dot at the end.
fn spell(address: Ipv4Addr, bases: [u8; 4], parts: u8, style: u8) -> String {
    let number = |value: u32, base: u8| match base % 5 {
        0 => value.to_string(),
        1 => format!("0{value:o}"),
        2 => format!("0x{value:x}"),
        3 => format!("0X{value:X}"),
        _ => format!("0x{value:012x}"),
    };
    let bits = address.to_bits();
    let (high, low) = (u16::try_from(bits >> 16).unwrap_or_default(), u16::try_from(bits & 0xffff).unwrap_or_default());
    match style % 8 {
        0 => return format!("[::ffff:{address}]"),
        1 => return format!("[::ffff:{high:x}:{low:X}]"),
        2 => return format!("[64:ff9b::{address}]"),
        3 => return format!("[{}]", Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1)),
        _ => {}
    }
    let [a, b, c, d] = address.octets().map(u32::from);
    let numbers = match parts % 4 {
        0 => vec![a, b, c, d],
        1 => vec![a, b, c << 8 | d],
        2 => vec![a, b << 16 | c << 8 | d],
        _ => vec![bits],
    };
    let mut text = numbers.iter().zip(bases).map(|(value, base)| number(*value, base)).collect::<Vec<_>>().join(".");
    if style.is_multiple_of(2) {
        text.push('.');
    }
    text
}
