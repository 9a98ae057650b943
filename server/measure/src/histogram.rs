//! Response times, counted.

mod log_lines;

pub use log_lines::{LogLinesError, decode_log_lines, encode_log_lines};

/// Longest time that is told apart from longer ones: 60 s, the longest time limit of a request.
pub const MICROSECONDS_MAX: u64 = 60_000_000;

/// Shortest time that is told apart from shorter ones.
const MICROSECONDS_MIN: u64 = 1;

/// Significant decimal digits: a value is known to one part in a thousand. Two digits would need a
/// third of the space, and would hide a change of one per cent.
const DIGITS: u8 = 3;

/// A high dynamic range histogram of times in microseconds.
///
/// Its size does not depend on how much is counted. A time beyond [`MICROSECONDS_MAX`] is counted at
/// the end of the range and in [`Histogram::saturated`].
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    counts: hdrhistogram::Histogram<u64>,
    saturated: u64,
}

impl Histogram {
    /// An empty histogram.
    #[expect(clippy::missing_panics_doc, reason = "the bounds are constants")]
    pub fn new() -> Self {
        let counts =
            hdrhistogram::Histogram::new_with_bounds(MICROSECONDS_MIN, MICROSECONDS_MAX, DIGITS)
                .expect("the bounds are constants that satisfy the library's conditions");
        Self {
            counts,
            saturated: 0,
        }
    }

    /// Counts one time.
    #[inline]
    pub fn record(&mut self, microseconds: u64) {
        if microseconds > MICROSECONDS_MAX {
            self.saturated += 1;
        }
        self.counts
            .saturating_record(microseconds.min(MICROSECONDS_MAX));
    }

    /// Adds what the other one counted: the same as if all of it had been counted here.
    #[expect(clippy::missing_panics_doc, reason = "all have the same bounds")]
    pub fn merge(&mut self, other: &Self) {
        self.counts
            .add(&other.counts)
            .expect("every histogram of this type has the same bounds");
        self.saturated = self.saturated.saturating_add(other.saturated);
    }

    /// How many times were counted.
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// How many of them were longer than [`MICROSECONDS_MAX`].
    pub fn saturated(&self) -> u64 {
        self.saturated
    }

    /// The time that this share of all times (0 to 1) does not exceed; 0 when nothing was counted.
    pub fn quantile(&self, share: f64) -> u64 {
        self.counts.value_at_quantile(share).min(MICROSECONDS_MAX)
    }

    /// The longest time; 0 when nothing was counted.
    pub fn max(&self) -> u64 {
        self.counts.max().min(MICROSECONDS_MAX)
    }

    /// The mean, rounded; 0 when nothing was counted.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a mean of values between 0 and MICROSECONDS_MAX"
    )]
    pub fn mean(&self) -> u64 {
        self.counts.mean().round() as u64
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(times: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        for time in times {
            histogram.record(*time);
        }
        histogram
    }

    #[test]
    fn a_time_beyond_the_range_is_counted_at_its_end() {
        let histogram = of(&[5, MICROSECONDS_MAX, MICROSECONDS_MAX + 1, u64::MAX]);
        assert_eq!(histogram.count(), 4);
        assert_eq!(histogram.saturated(), 2);
        assert_eq!(histogram.max(), MICROSECONDS_MAX);
    }

    #[test]
    fn an_empty_histogram_answers_zero() {
        let histogram = Histogram::new();
        assert_eq!(
            (histogram.quantile(0.99), histogram.max(), histogram.mean()),
            (0, 0, 0)
        );
    }

    #[test]
    fn values_are_known_to_one_part_in_a_thousand() {
        for value in [1, 999, 1_001, 123_456, 59_999_999] {
            let found = of(&[value]).quantile(0.5);
            assert!(
                found.abs_diff(value) * 1_000 <= value,
                "{value} became {found}"
            );
        }
    }

    /// Four pods of which one is slow and carries a quarter of the requests: the mean of their
    /// medians is far from the median of all requests.
    #[test]
    fn merging_differs_from_averaging() {
        let fast = of(&[100; 1_000]);
        let slow = of(&[10_000; 1_000]);
        let mut merged = slow.clone();
        for _ in 0..3 {
            merged.merge(&fast);
        }
        assert_eq!(merged.quantile(0.5), 100);
        let average = (3 * fast.quantile(0.5) + slow.quantile(0.5)) / 4;
        assert!(average > 2_000, "{average}");
    }

    proptest! {
        #[test]
        fn merge_equals_concatenation(
            parts in prop::collection::vec(prop::collection::vec(0_u64..70_000_000, 0..200), 0..6)
        ) {
            let mut merged = Histogram::new();
            for part in &parts {
                merged.merge(&of(part));
            }
            prop_assert_eq!(merged, of(&parts.concat()));
        }
    }
}
