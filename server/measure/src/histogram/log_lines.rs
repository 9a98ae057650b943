//! A histogram as lines of a pod's log, and back.
//!
//! ```text
//! tunedweb-histogram/1 line=LINE run=RUN index=N part=I/OF saturated=N sum=SUM DATA
//! ```
//!
//! DATA is a piece of the V2 encoding with deflate in base64. LINE is the CRC-32 of the rest of its
//! line, SUM that of the whole text before it was cut: a line that was cut short or mixed up is
//! dropped, and pieces of two attempts of the same pod do not mix.

use std::collections::BTreeMap;
use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

use super::{DIGITS, Histogram, MICROSECONDS_MAX, MICROSECONDS_MIN};

const PREFIX: &str = "tunedweb-histogram/1 ";

/// Characters of DATA in a line. Container runtimes cut a log line at 16 KiB (CRI log format);
/// header and run name (at most 253 characters) fit in the rest.
const DATA_CHARS: usize = 12 * 1024;

/// More parts than any histogram needs: one with a count in each of its buckets is under 10.
const PARTS_MAX: usize = 32;

/// Longest V2 encoding that is unpacked: 17 thousand buckets of at most 9 bytes each, and its head.
const ENCODED_BYTES_MAX: usize = 256 * 1024;

/// Why a histogram could not be put together from log lines.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogLinesError {
    /// Some of its lines are not in the log.
    #[error("{found} of {of} histogram lines found")]
    MissingParts {
        /// Lines found.
        found: usize,
        /// Lines that were written.
        of: usize,
    },
    /// The text is not what was written.
    #[error("the checksum of the histogram does not match")]
    Checksum,
    /// The text is not an encoded histogram.
    #[error("the histogram cannot be decoded")]
    Decode,
    /// It has other bounds or digits than ours.
    #[error("the histogram has other bounds than 1 to {MICROSECONDS_MAX} microseconds, 3 digits")]
    Bounds,
}

/// The histogram as log lines, each under 16 KiB, without line ends.
///
/// `run` is a name without white space, such as [`crate::PodSummary::run`].
#[expect(
    clippy::missing_panics_doc,
    reason = "base64 is ASCII, and memory takes every write"
)]
pub fn encode_log_lines(run: &str, index: u32, histogram: &Histogram) -> Vec<String> {
    let text = encode(histogram);
    let sum = crc32(text.as_bytes());
    let of = text.len().div_ceil(DATA_CHARS);
    let saturated = histogram.saturated;
    let pieces = (1..).zip(text.as_bytes().chunks(DATA_CHARS));
    pieces
        .map(|(part, piece)| {
            let data = str::from_utf8(piece).expect("base64 is ASCII");
            let rest = format!(
                "run={run} index={index} part={part}/{of} saturated={saturated} sum={sum:08x} {data}"
            );
            format!("{PREFIX}line={:08x} {rest}", crc32(rest.as_bytes()))
        })
        .collect()
}

/// The histograms of a run, by index of the pod, found among the lines of one or several logs.
///
/// Lines of others, of other runs, damaged ones and repeated ones are passed over. When a pod wrote
/// two histograms, the one that is complete first counts. An index without any line is not in the
/// answer.
pub fn decode_log_lines<'a>(
    run: &str,
    lines: impl IntoIterator<Item = &'a str>,
) -> BTreeMap<u32, Result<Histogram, LogLinesError>> {
    let mut found: BTreeMap<u32, Result<Histogram, LogLinesError>> = BTreeMap::new();
    let mut partial: BTreeMap<Key, BTreeMap<usize, &str>> = BTreeMap::new();
    for line in lines.into_iter().filter_map(Line::parse) {
        let index = line.key.index;
        if line.run != run || matches!(found.get(&index), Some(Ok(_))) {
            continue;
        }
        let parts = partial.entry(line.key).or_default();
        parts.insert(line.part, line.data);
        let outcome = if parts.len() == line.key.of {
            assemble(line.key, parts.values().copied())
        } else {
            Err(LogLinesError::MissingParts {
                found: parts.len(),
                of: line.key.of,
            })
        };
        found.insert(index, outcome);
    }
    found
}

/// What all parts of one histogram share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    index: u32,
    of: usize,
    saturated: u64,
    sum: u32,
}

struct Line<'a> {
    run: &'a str,
    key: Key,
    part: usize,
    data: &'a str,
}

impl<'a> Line<'a> {
    /// None: not a line of ours, or a damaged one.
    fn parse(line: &'a str) -> Option<Self> {
        let (check, rest) = line.trim_end().strip_prefix(PREFIX)?.split_once(' ')?;
        let check = u32::from_str_radix(check.strip_prefix("line=")?, 16).ok()?;
        if check != crc32(rest.as_bytes()) {
            return None;
        }
        let mut words = rest.split(' ');
        let mut field = |name: &str| words.next()?.strip_prefix(name);
        let run = field("run=")?;
        let index = field("index=")?.parse().ok()?;
        let (part, of) = field("part=")?.split_once('/')?;
        let (part, of) = (part.parse().ok()?, of.parse().ok()?);
        let saturated = field("saturated=")?.parse().ok()?;
        let sum = u32::from_str_radix(field("sum=")?, 16).ok()?;
        let data = field("")?;
        let key = Key {
            index,
            of,
            saturated,
            sum,
        };
        ((1..=of).contains(&part) && of <= PARTS_MAX).then_some(Self {
            run,
            key,
            part,
            data,
        })
    }
}

fn assemble<'a>(
    key: Key,
    parts: impl Iterator<Item = &'a str>,
) -> Result<Histogram, LogLinesError> {
    let text: String = parts.collect();
    if crc32(text.as_bytes()) != key.sum {
        return Err(LogLinesError::Checksum);
    }
    let counts = decode(&text)?;
    Ok(Histogram {
        counts,
        saturated: key.saturated,
    })
}

fn encode(histogram: &Histogram) -> String {
    let mut packed = Vec::new();
    V2DeflateSerializer::new()
        .serialize(&histogram.counts, &mut packed)
        .expect("memory takes every write and no count reaches 2^63");
    STANDARD.encode(packed)
}

/// Unpacks within a limit and compares the head before the library reserves memory by it.
fn decode(text: &str) -> Result<hdrhistogram::Histogram<u64>, LogLinesError> {
    /// Cookie and length of the packed form; cookie, length, offset, digits, lowest and highest
    /// value, ratio of the plain form (HdrHistogram V2 encoding).
    const PACKED_HEAD: usize = 8;
    const PLAIN_HEAD: usize = 40;
    let packed = STANDARD.decode(text).map_err(|_| LogLinesError::Decode)?;
    let packed = packed.get(PACKED_HEAD..).ok_or(LogLinesError::Decode)?;
    let mut plain = Vec::new();
    flate2::read::ZlibDecoder::new(packed)
        .take(ENCODED_BYTES_MAX as u64)
        .read_to_end(&mut plain)
        .map_err(|_| LogLinesError::Decode)?;
    let (head, body) = plain
        .split_at_checked(PLAIN_HEAD)
        .ok_or(LogLinesError::Decode)?;
    let length = u32::try_from(body.len()).map_err(|_| LogLinesError::Decode)?;
    if head[4..8] != length.to_be_bytes() {
        return Err(LogLinesError::Decode);
    }
    if head[12..16] != u32::from(DIGITS).to_be_bytes()
        || head[16..24] != MICROSECONDS_MIN.to_be_bytes()
        || head[24..32] != MICROSECONDS_MAX.to_be_bytes()
    {
        return Err(LogLinesError::Bounds);
    }
    Deserializer::new()
        .deserialize(&mut plain.as_slice())
        .map_err(|_| LogLinesError::Decode)
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::write::ZlibEncoder;
    use proptest::prelude::*;

    use super::*;

    /// Counts that deflate badly, so that the text needs several lines.
    fn wide() -> Histogram {
        let mut histogram = Histogram::new();
        let mut state = 1_u64;
        for _ in 0..200_000 {
            // the multiplier of Knuth's MMIX generator
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            histogram.record((state >> 33) % (1 << (10 + state % 16)));
        }
        histogram
    }

    fn decode_one(run: &str, lines: &[String]) -> Option<Result<Histogram, LogLinesError>> {
        decode_log_lines(run, lines.iter().map(String::as_str)).remove(&3)
    }

    #[test]
    fn a_histogram_survives_the_log() {
        let histogram = wide();
        let lines = encode_log_lines("site-x", 3, &histogram);
        assert!(lines.len() > 1, "one line does not prove that parts join");
        assert_eq!(decode_one("site-x", &lines), Some(Ok(histogram)));
    }

    #[test]
    fn an_empty_histogram_and_a_run_without_name_survive_the_log() {
        let lines = encode_log_lines("", 3, &Histogram::new());
        assert_eq!(decode_one("", &lines), Some(Ok(Histogram::new())));
    }

    #[test]
    fn what_was_saturated_stays_counted() {
        let mut histogram = Histogram::new();
        histogram.record(u64::MAX);
        let lines = encode_log_lines("r", 3, &histogram);
        let found = decode_one("r", &lines).unwrap().unwrap();
        assert_eq!((found.count(), found.saturated()), (1, 1));
    }

    /// 16 KiB is where container runtimes cut; the longest name of a Kubernetes object is 253.
    #[test]
    fn every_line_is_below_16_kib() {
        let run = "r".repeat(253);
        for line in encode_log_lines(&run, u32::MAX, &wide()) {
            assert!(line.len() < 16 * 1024, "{} bytes", line.len());
        }
    }

    #[test]
    fn the_largest_histogram_is_within_the_limits_of_the_reader() {
        let mut histogram = Histogram::new();
        let mut value = 1;
        let mut large = 1_u64 << 40;
        while value <= MICROSECONDS_MAX {
            large = large.wrapping_mul(6_364_136_223_846_793_005) >> 8;
            histogram.counts.record_n(value, large).unwrap();
            value = histogram.counts.next_non_equivalent(value);
        }
        let lines = encode_log_lines("r", 3, &histogram);
        assert!(lines.len() <= PARTS_MAX, "{} lines", lines.len());
        assert_eq!(decode_one("r", &lines), Some(Ok(histogram)));
    }

    #[test]
    fn other_lines_other_runs_and_repeated_lines_are_passed_over() {
        let histogram = wide();
        let mut lines = encode_log_lines("r", 3, &histogram);
        lines.reverse();
        lines.extend(encode_log_lines("r", 3, &histogram));
        lines.insert(0, "load starts".to_owned());
        lines.insert(1, format!("{PREFIX}nonsense"));
        lines.extend(encode_log_lines("other", 3, &Histogram::new()));
        assert_eq!(decode_one("r", &lines), Some(Ok(histogram)));
    }

    #[test]
    fn the_first_complete_histogram_of_an_index_counts() {
        let first = wide();
        let mut lines = encode_log_lines("r", 3, &first);
        lines.extend(encode_log_lines("r", 3, &Histogram::new()));
        assert_eq!(decode_one("r", &lines), Some(Ok(first)));
    }

    #[test]
    fn an_attempt_that_was_cut_off_does_not_spoil_the_next_one() {
        let mut lines = encode_log_lines("r", 3, &wide());
        lines.truncate(1);
        let mut second = Histogram::new();
        second.record(7);
        lines.extend(encode_log_lines("r", 3, &second));
        assert_eq!(decode_one("r", &lines), Some(Ok(second)));
    }

    #[test]
    fn a_lost_or_damaged_line_is_a_missing_part() {
        let mut lines = encode_log_lines("r", 3, &wide());
        let of = lines.len();
        let cut = lines[1].len() - 100;
        lines[1].truncate(cut);
        let found = of - 1;
        let expected = LogLinesError::MissingParts { found, of };
        assert_eq!(decode_one("r", &lines), Some(Err(expected)));
    }

    #[test]
    fn every_pod_of_a_run_is_told_apart() {
        let mut lines = encode_log_lines("r", 0, &Histogram::new());
        lines.extend(encode_log_lines("r", 1, &wide()));
        let found = decode_log_lines("r", lines.iter().map(String::as_str));
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [0, 1]);
    }

    /// A pod that is not ours could send anything; a small text must not unpack to a large one.
    #[test]
    fn a_text_that_unpacks_to_more_than_a_histogram_is_refused() {
        let mut packed = vec![0; 8];
        let mut encoder = ZlibEncoder::new(&mut packed, flate2::Compression::default());
        encoder.write_all(&vec![0; 64 << 20]).unwrap();
        encoder.finish().unwrap();
        assert_eq!(decode(&STANDARD.encode(packed)), Err(LogLinesError::Decode));
    }

    proptest! {
        /// What can be read can also be worked with, whatever counts it claims.
        #[test]
        fn counts_that_nobody_made_are_read_or_refused(body in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut plain = 0x1c84_9313_u32.to_be_bytes().to_vec();
            for word in [u32::try_from(body.len()).unwrap(), 0, DIGITS.into()] {
                plain.extend(word.to_be_bytes());
            }
            for word in [MICROSECONDS_MIN, MICROSECONDS_MAX, 1_f64.to_bits()] {
                plain.extend(word.to_be_bytes());
            }
            plain.extend(body);
            let mut packed = vec![0; 8];
            let mut encoder = ZlibEncoder::new(&mut packed, flate2::Compression::fast());
            encoder.write_all(&plain).unwrap();
            encoder.finish().unwrap();
            if let Ok(counts) = decode(&STANDARD.encode(packed)) {
                let hostile = Histogram { counts, saturated: u64::MAX };
                let mut merged = hostile.clone();
                merged.merge(&hostile);
                prop_assert!(merged.quantile(0.999) <= merged.max().max(1));
                prop_assert!(merged.mean() <= MICROSECONDS_MAX);
            }
        }
    }

    #[test]
    fn a_histogram_with_other_bounds_is_refused() {
        let other = hdrhistogram::Histogram::<u64>::new_with_bounds(1, 1_000, 2).unwrap();
        let mut packed = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&other, &mut packed)
            .unwrap();
        assert_eq!(decode(&STANDARD.encode(packed)), Err(LogLinesError::Bounds));
    }
}
