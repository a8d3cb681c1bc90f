//! Which servers a kubeconfig may lead to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::server::Host;

/// Cloud metadata services of one provider listen on this unique-local address, which no range below covers.
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// One `--allow-server` or `--deny-server` value: a host name, an address, or a network in CIDR notation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostRule {
    /// Exactly this DNS name, lower case.
    Name(String),
    /// Every address of a network; a single address is a network of full length.
    Network {
        /// An address of the network.
        address: IpAddr,
        /// Leading bits that must be equal.
        prefix: u8,
    },
}

/// The text is neither a host name, nor an address, nor a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a host name, an IP address or a network such as 10.0.0.0/8")]
pub struct HostRuleError;

impl FromStr for HostRule {
    type Err = HostRuleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((address, prefix)) = text.split_once('/') else {
            return match Host::parse(text).ok_or(HostRuleError)? {
                Host::Name(name) => Ok(Self::Name(name)),
                Host::Address(address) => {
                    let address = unwrap_v4(address);
                    Ok(Self::Network { address, prefix: bits(address) })
                }
            };
        };
        let address: IpAddr = address.parse().map_err(|_| HostRuleError)?;
        let prefix: u8 = prefix.parse().map_err(|_| HostRuleError)?;
        if prefix > bits(address) {
            return Err(HostRuleError);
        }
        // A network of mapped addresses is meant as the IPv4 network it maps.
        match (unwrap_v4(address), prefix.checked_sub(96)) {
            (plain @ IpAddr::V4(_), Some(prefix)) if address.is_ipv6() => Ok(Self::Network { address: plain, prefix }),
            _ => Ok(Self::Network { address, prefix }),
        }
    }
}

impl HostRule {
    /// The length of the network's prefix, if it contains the address.
    fn prefix_of(&self, candidate: IpAddr) -> Option<u8> {
        let Self::Network { address, prefix } = self else { return None };
        let differing_bits = match (address, candidate) {
            (IpAddr::V4(network), IpAddr::V4(candidate)) => (network.to_bits() ^ candidate.to_bits()).leading_zeros(),
            (IpAddr::V6(network), IpAddr::V6(candidate)) => (network.to_bits() ^ candidate.to_bits()).leading_zeros(),
            _ => return None,
        };
        (differing_bits >= u32::from(*prefix)).then_some(*prefix)
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self, Self::Name(rule) if rule == name)
    }
}

/// Which servers the hub may connect to.
///
/// Without rules everything is allowed but the hub's own surroundings: loopback, link-local, unspecified and multicast addresses,
/// and the name `localhost`. Of the networks that contain an address the longest decides, a denial wins a tie; so
/// `--deny-server 0.0.0.0/0 --allow-server 10.1.0.0/16` is an exclusive list. A name that is allowed itself may lead to the hub's
/// surroundings; a denied network is denied under any name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerPolicy {
    allow: Vec<HostRule>,
    deny: Vec<HostRule>,
}

impl ServerPolicy {
    /// A policy of `--allow-server` and `--deny-server` values.
    pub fn new(allow: Vec<HostRule>, deny: Vec<HostRule>) -> Self {
        Self { allow, deny }
    }

    /// Whether a kubeconfig may name this host. Addresses behind a name are judged when it is resolved, by
    /// [`Self::allows_address`].
    pub fn allows(&self, host: &Host) -> bool {
        match host {
            Host::Address(address) => self.allows_address(None, *address),
            Host::Name(name) if self.deny.iter().any(|rule| rule.is_name(name)) => false,
            Host::Name(name) if self.allow.iter().any(|rule| rule.is_name(name)) => true,
            Host::Name(name) if name == "localhost" || name.ends_with(".localhost") => {
                self.allows_address(None, Ipv4Addr::LOCALHOST.into())
            }
            Host::Name(_) => true,
        }
    }

    /// Whether to connect to an address, which `name` was resolved to unless the kubeconfig names the address itself.
    pub fn allows_address(&self, name: Option<&str>, address: IpAddr) -> bool {
        let address = unwrap_v4(address);
        let longest = |rules: &[HostRule]| rules.iter().filter_map(|rule| rule.prefix_of(address)).max();
        match (longest(&self.allow), longest(&self.deny)) {
            (Some(allowed), Some(denied)) => allowed > denied,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => name.is_some_and(|name| self.allow.iter().any(|rule| rule.is_name(name))) || !is_surroundings(address),
        }
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// IPv6 addresses that lead to an IPv4 host count as that host: mapped, compatible, NAT64 and 6to4.
fn unwrap_v4(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let embedded = match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => Some((high, low)),
        // Below 0.1.0.0 are the unspecified and the loopback address of IPv6.
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => Some((high, low)),
        _ => None,
    };
    embedded.map_or(address, |(high, low)| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)).into())
}

fn is_surroundings(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            // The whole of 0.0.0.0/8 is "this host".
            v4.is_loopback() || v4.is_link_local() || v4.is_broadcast() || v4.is_multicast() || v4.octets().starts_with(&[0])
        }
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unspecified() || v6.is_unicast_link_local() || v6.is_multicast() || v6 == METADATA_V6,
    }
}
