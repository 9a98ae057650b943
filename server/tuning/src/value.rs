//! Values of kernel keys, in one canonical form whatever the separators they came with.

use std::fmt;

/// A value of a kernel key, in the unit that the user writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// One number or a vector of numbers.
    Numbers(Vec<u64>),
    /// A set of ports.
    Ports(PortSet),
    /// A name, such as that of a congestion control algorithm.
    Word(String),
}

/// The canonical text: numbers separated by single spaces, ports as `80,8000-8999`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Numbers(numbers) => {
                for (index, number) in numbers.iter().enumerate() {
                    let separator = if index == 0 { "" } else { " " };
                    write!(f, "{separator}{number}")?;
                }
                Ok(())
            }
            Self::Ports(ports) => ports.fmt(f),
            Self::Word(word) => f.write_str(word),
        }
    }
}

/// A set of ports as sorted ranges that neither overlap nor touch, so that equal sets are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PortSet(Vec<(u16, u16)>);

impl PortSet {
    /// Reads `80,8000-8999`; `None` where the text is not a list of ports and rising ranges.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::default());
        }
        let ranges: Option<Vec<_>> = text.split(',').map(parse_range).collect();
        ranges.map(Self::from_ranges)
    }

    /// Ports of either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::from_ranges(self.0.iter().chain(&other.0).copied().collect())
    }

    /// Ports of this set that are not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut left = self.0.clone();
        for &(low, high) in &other.0 {
            left = left
                .iter()
                .flat_map(|&range| without(range, (low, high)))
                .collect();
        }
        Self(left)
    }

    /// The lowest port.
    pub fn first(&self) -> Option<u16> {
        self.0.first().map(|&(low, _)| low)
    }

    fn from_ranges(mut ranges: Vec<(u16, u16)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match merged.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        Self(merged)
    }
}

impl fmt::Display for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (low, high)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            if low == high {
                write!(f, "{separator}{low}")?;
            } else {
                write!(f, "{separator}{low}-{high}")?;
            }
        }
        Ok(())
    }
}

/// Reads a number as people and this program write it: decimal digits without sign, leading zero
/// or blank. The kernel would read `010` as 8 and `0x10` as 16.
pub(crate) fn parse_number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = digits && (text == "0" || !text.starts_with('0'));
    if canonical { text.parse().ok() } else { None }
}

fn parse_range(text: &str) -> Option<(u16, u16)> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let low = u16::try_from(parse_number(low)?).ok()?;
    let high = u16::try_from(parse_number(high)?).ok()?;
    (low <= high).then_some((low, high))
}

fn without((low, high): (u16, u16), (cut_low, cut_high): (u16, u16)) -> Vec<(u16, u16)> {
    if cut_high < low || cut_low > high {
        return vec![(low, high)];
    }
    let mut left = Vec::with_capacity(2);
    if cut_low > low {
        left.push((low, cut_low - 1));
    }
    if cut_high < high {
        left.push((cut_high + 1, high));
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ports(text: &str) -> PortSet {
        PortSet::parse(text).expect("a list of ports")
    }

    #[test]
    fn touching_and_overlapping_ranges_become_one() {
        assert_eq!(
            ports("30001,1-5,6,30000,4-9").to_string(),
            "1-9,30000-30001"
        );
    }

    #[test]
    fn a_reversed_range_a_sign_and_a_port_beyond_16_bits_are_refused() {
        for text in ["9-1", "-1", "+1", "65536", "080", "1,,2", " 1", "1-", "a"] {
            assert_eq!(PortSet::parse(text), None, "{text}");
        }
    }

    #[test]
    fn only_canonical_decimal_is_a_number() {
        assert_eq!(parse_number("0"), Some(0));
        assert_eq!(parse_number("18446744073709551615"), Some(u64::MAX));
        for text in [
            "",
            "010",
            "0x10",
            "-1",
            "+1",
            "1e5",
            " 1",
            "1_000",
            "18446744073709551616",
        ] {
            assert_eq!(parse_number(text), None, "{text}");
        }
    }

    fn any_ports() -> impl Strategy<Value = PortSet> {
        prop::collection::vec((0u16..60, 0u16..60), 0..6).prop_map(|pairs| {
            PortSet::from_ranges(pairs.iter().map(|&(a, b)| (a.min(b), a.max(b))).collect())
        })
    }

    proptest! {
        #[test]
        fn sets_obey_the_laws_of_sets(a in any_ports(), b in any_ports()) {
            prop_assert_eq!(a.union(&b), b.union(&a));
            prop_assert_eq!(a.union(&a), a.clone());
            prop_assert_eq!(a.union(&b).difference(&b), a.difference(&b));
            prop_assert_eq!(a.difference(&b).union(&b), a.union(&b));
            prop_assert_eq!(PortSet::parse(&a.to_string()), Some(a));
        }
    }
}
