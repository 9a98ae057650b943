//! Lengths of time as they are typed: `500ms`, `30s`, `5m`, `2h`.

use std::time::Duration;

/// Longest time that is taken: a day, the longest run that a resource may ask for.
pub(crate) const DURATION_MAX: Duration = Duration::from_hours(24);

/// Reads a length of time; a number without unit is in seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let milliseconds_per_unit = match &text[digits.len()..] {
        "ms" => 1,
        "s" | "" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        unit => {
            return Err(format!(
                "unknown unit {unit:?}: use ms, s, m or h, as in 30s"
            ));
        }
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("{digits:?} is not a whole number: write it as in 500ms or 30s"))?;
    let duration = number
        .checked_mul(milliseconds_per_unit)
        .map(Duration::from_millis);
    duration
        .filter(|duration| *duration <= DURATION_MAX)
        .ok_or_else(|| "at most 24h".to_owned())
}

/// A length of time that is not zero.
pub(crate) fn parse_positive(text: &str) -> Result<Duration, String> {
    let duration = parse(text)?;
    if duration.is_zero() {
        return Err("must be longer than 0".to_owned());
    }
    Ok(duration)
}

/// The time limit of a request: what the histogram tells apart.
pub(crate) fn parse_time_limit(text: &str) -> Result<Duration, String> {
    let duration = parse_positive(text)?;
    if duration > Duration::from_micros(tunedweb_measure::MICROSECONDS_MAX) {
        return Err("at most 60s".to_owned());
    }
    Ok(duration)
}

/// Whole microseconds; 64 bits hold half a million years.
pub(crate) fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_counts_in_its_unit() {
        for (text, seconds) in [("30s", 30.0), ("30", 30.0), ("250ms", 0.25), ("2m", 120.0)] {
            assert_eq!(parse(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        assert_eq!(parse("24h"), Ok(DURATION_MAX));
    }

    #[test]
    fn what_is_no_length_of_time_is_refused() {
        for text in [
            "",
            "s",
            "-1s",
            "1.5s",
            "1d",
            "1 s",
            "25h",
            "99999999999999999999s",
            "5é",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse_positive("0s").is_err());
        assert!(parse_time_limit("61s").is_err());
    }
}
