//! Networks of conditions: an address, or a prefix of addresses.

use std::net::IpAddr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    prefix_bits: u32,
}

impl Network {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match prefix {
            None => bits,
            Some(prefix) if !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit()) => {
                prefix.parse().ok().filter(|prefix| *prefix <= bits)?
            }
            Some(_) => return None,
        };
        Some(Self { address, prefix_bits })
    }

    /// Whether an address lies in it. An IPv4 address that came over IPv6 is one of IPv4.
    pub(crate) fn contains(&self, text: &str) -> bool {
        let Ok(address) = text.parse::<IpAddr>() else { return false };
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let differ = u32::from(network) ^ u32::from(address);
                differ.leading_zeros() >= self.prefix_bits
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let differ = u128::from(network) ^ u128::from(address);
                differ.leading_zeros() >= self.prefix_bits
            }
            _ => false,
        }
    }

    /// Whether it is so wide that it is no restriction: AWS, "The meaning of 'public'".
    pub(crate) fn is_wide(&self) -> bool {
        self.prefix_bits < if self.address.is_ipv4() { 8 } else { 32 }
    }

    /// Its share of all addresses of its kind.
    pub(crate) fn share(&self) -> f64 {
        0.5_f64.powi(i32::try_from(self.prefix_bits).unwrap_or(i32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_addresses() {
        let table = [
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.9.9.9/8", "10.1.2.3", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("0.0.0.0/0", "::1", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("2001:db8::/32", "2001:db8:1::", true),
            ("2001:db8::/32", "2001:db9::", false),
            ("::/0", "2001:db9::", true),
            ("10.0.0.0/8", "x", false),
        ];
        for (network, address, expected) in table {
            assert_eq!(Network::parse(network).unwrap().contains(address), expected, "{network} {address}");
        }
        for bad in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/", "10.0.0.0/+8", "10.0.0.0/-1", "a/8"] {
            assert_eq!(Network::parse(bad), None, "{bad}");
        }
        assert!(Network::parse("0.0.0.0/7").unwrap().is_wide() && !Network::parse("10.0.0.0/8").unwrap().is_wide());
        assert!(Network::parse("2001::/31").unwrap().is_wide() && !Network::parse("2001:db8::/32").unwrap().is_wide());
    }
}
