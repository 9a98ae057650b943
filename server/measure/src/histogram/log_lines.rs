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
