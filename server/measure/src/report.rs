//! From what the load pods leave behind to one result.

use crate::histogram::{Histogram, LogLinesError, decode_log_lines};
use crate::result::{Errors, LoadSummary, PodSummary};

/// Longest termination message of a container that the kubelet keeps (Kubernetes: 4096 bytes).
pub const TERMINATION_MESSAGE_BYTES_MAX: usize = 4096;

/// Format of [`PodSummary`] that is written and read.
const VERSION: u32 = 1;

/// Why what a pod left behind is no result of it.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The summary does not fit.
    #[error(
        "the summary of {bytes} bytes exceeds the {TERMINATION_MESSAGE_BYTES_MAX} bytes of a \
         termination message"
    )]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The message is not a summary.
    #[error("the termination message is not a summary of a load run")]
    Parse(#[source] serde_json::Error),
    /// Another format.
    #[error("the summary has format {found}, this program reads format {VERSION}")]
    Version {
        /// Format found.
        found: u32,
    },
    /// The summary belongs to something else.
    #[error("the summary is of run {found_run:?} index {found_index}")]
    OtherPod {
        /// Run in the summary.
        found_run: String,
        /// Index in the summary.
        found_index: u32,
    },
    /// The load was stopped before its end.
    #[error("the load was stopped before its end")]
    EndedEarly,
    /// The log holds no histogram of this pod.
    #[error("the log holds no histogram of this pod")]
    NoHistogram,
    /// The log holds a histogram that cannot be read.
    #[error("the histogram in the log cannot be read")]
    Histogram(#[source] LogLinesError),
    /// The two halves are not of one run.
    #[error("the summary counts {requests} requests, the histogram {counted}")]
    Count {
        /// Requests in the summary.
        requests: u64,
        /// Times in the histogram.
        counted: u64,
    },
}

/// One pod's share of a result: both halves, checked against each other.
#[derive(Clone, Debug, PartialEq)]
pub struct PodReport {
    /// The figures.
    pub pod: PodSummary,
    /// The response times.
    pub histogram: Histogram,
}

impl PodReport {
    /// Puts a pod's report together from its termination message and the lines of its log.
    pub fn read<'a>(
        run: &str,
        index: u32,
        termination_message: &str,
        log_lines: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, ReportError> {
        let pod = PodSummary::parse(termination_message)?;
        if pod.run != run || pod.index != index {
            return Err(ReportError::OtherPod {
                found_run: pod.run,
                found_index: pod.index,
            });
        }
        if pod.ended_early {
            return Err(ReportError::EndedEarly);
        }
        let histogram = decode_log_lines(run, log_lines)
            .remove(&index)
            .ok_or(ReportError::NoHistogram)?
            .map_err(ReportError::Histogram)?;
        if pod.summary.requests != histogram.count() {
            return Err(ReportError::Count {
                requests: pod.summary.requests,
                counted: histogram.count(),
            });
        }
        Ok(Self { pod, histogram })
    }

    /// The result of all pods: their summaries merged, and their histograms.
    pub fn merge(reports: &[Self]) -> (LoadSummary, Histogram) {
        let mut histogram = Histogram::new();
        for report in reports {
            histogram.merge(&report.histogram);
        }
        let pods: Vec<&PodSummary> = reports.iter().map(|report| &report.pod).collect();
        (merge_summaries(pods, &histogram), histogram)
    }
}

impl PodSummary {
    /// A summary in the format that this program writes.
    pub fn new(
        run: String,
        index: u32,
        started_at_microseconds: u64,
        summary: LoadSummary,
    ) -> Self {
        Self {
            version: VERSION,
            run,
            index,
            started_at_microseconds,
            ended_early: false,
            summary,
        }
    }

    /// The summary as termination message.
    #[expect(
        clippy::missing_panics_doc,
        reason = "numbers and strings always serialize"
    )]
    pub fn to_termination_message(&self) -> Result<String, ReportError> {
        let text = serde_json::to_string(self).expect("a struct of numbers and strings is JSON");
        if text.len() > TERMINATION_MESSAGE_BYTES_MAX {
            return Err(ReportError::TooLong { bytes: text.len() });
        }
        Ok(text)
    }

    /// Reads a termination message.
    pub fn parse(message: &str) -> Result<Self, ReportError> {
        if message.len() > TERMINATION_MESSAGE_BYTES_MAX {
            return Err(ReportError::TooLong {
                bytes: message.len(),
            });
        }
        let pod: Self = serde_json::from_str(message).map_err(ReportError::Parse)?;
        if pod.version != VERSION {
            return Err(ReportError::Version { found: pod.version });
        }
        Ok(pod)
    }
}

/// One result of many pods. Rates and counts add up, the length is that of the longest, and
/// percentiles come from the merged histogram alone.
fn merge_summaries<'a>(
    pods: impl IntoIterator<Item = &'a PodSummary>,
    histogram: &Histogram,
) -> LoadSummary {
    let mut merged = LoadSummary::default();
    for LoadSummary {
        requests_per_second,
        bytes_per_second,
        p50_microseconds: _,
        p90_microseconds: _,
        p99_microseconds: _,
        p999_microseconds: _,
        max_microseconds: _,
        mean_microseconds: _,
        requests,
        bytes,
        errors,
        connections_opened,
        duration_microseconds,
    } in pods.into_iter().map(|pod| &pod.summary)
    {
        add(&mut merged.requests_per_second, *requests_per_second);
        add(&mut merged.bytes_per_second, *bytes_per_second);
        add(&mut merged.requests, *requests);
        add(&mut merged.bytes, *bytes);
        add(&mut merged.connections_opened, *connections_opened);
        merged.errors.merge(errors);
        merged.duration_microseconds = merged.duration_microseconds.max(*duration_microseconds);
    }
    merged.set_times(histogram);
    merged
}

impl LoadSummary {
    /// Takes the response times over from a histogram.
    pub fn set_times(&mut self, histogram: &Histogram) {
        self.p50_microseconds = histogram.quantile(0.5);
        self.p90_microseconds = histogram.quantile(0.9);
        self.p99_microseconds = histogram.quantile(0.99);
        self.p999_microseconds = histogram.quantile(0.999);
        self.max_microseconds = histogram.max();
        self.mean_microseconds = histogram.mean();
    }
}

impl Errors {
    /// All kinds together.
    pub fn total(&self) -> u64 {
        let Self {
            connect,
            closed,
            timeout,
            protocol,
            status,
        } = self;
        [closed, timeout, protocol, status]
            .iter()
            .fold(*connect, |sum, count| sum.saturating_add(**count))
    }

    /// Adds another count, kind by kind.
    pub fn merge(&mut self, other: &Self) {
        let Self {
            connect,
            closed,
            timeout,
            protocol,
            status,
        } = other;
        add(&mut self.connect, *connect);
        add(&mut self.closed, *closed);
        add(&mut self.timeout, *timeout);
        add(&mut self.protocol, *protocol);
        add(&mut self.status, *status);
    }
}

/// Counts come from other programs; absurd ones must not wrap around to small ones.
fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::encode_log_lines;
    use crate::result::per_second;

    fn histogram(time: u64, count: u64) -> Histogram {
        let mut histogram = Histogram::new();
        for _ in 0..count {
            histogram.record(time);
        }
        histogram
    }

    fn pod(index: u32, histogram: &Histogram, seconds: u64) -> PodSummary {
        let duration_microseconds = seconds * 1_000_000;
        let requests = histogram.count();
        let mut summary = LoadSummary {
            requests_per_second: per_second(requests, duration_microseconds),
            bytes_per_second: per_second(requests * 100, duration_microseconds),
            requests,
            bytes: requests * 100,
            errors: Errors {
                status: 1,
                ..Errors::default()
            },
            connections_opened: 10,
            duration_microseconds,
            ..LoadSummary::default()
        };
        summary.set_times(histogram);
        PodSummary::new("r".to_owned(), index, 0, summary)
    }

    #[test]
    fn rates_add_up_and_percentiles_come_from_the_merged_histogram() {
        let (fast, slow) = (histogram(100, 3_000), histogram(10_000, 1_000));
        let reports = [
            PodReport {
                pod: pod(0, &fast, 10),
                histogram: fast,
            },
            PodReport {
                pod: pod(1, &slow, 11),
                histogram: slow,
            },
        ];
        let (merged, histogram) = PodReport::merge(&reports);
        assert_eq!(histogram.count(), 4_000);
        assert_eq!(merged.requests_per_second, 300 + 90);
        assert_eq!(merged.requests, 4_000);
        assert_eq!(merged.bytes, 400_000);
        assert_eq!(merged.connections_opened, 20);
        assert_eq!(merged.errors.status, 2);
        assert_eq!(merged.duration_microseconds, 11_000_000);
        assert_eq!(merged.p50_microseconds, 100);
        assert_eq!(merged.p99_microseconds, histogram.quantile(0.99));
        assert_eq!(merged.mean_microseconds, histogram.mean());
    }

    #[test]
    fn no_pods_merge_to_nothing() {
        assert_eq!(
            merge_summaries(&[], &Histogram::new()),
            LoadSummary::default()
        );
    }

    #[test]
    fn absurd_counts_do_not_wrap_around() {
        let mut absurd = pod(0, &Histogram::new(), 1);
        absurd.summary.requests = u64::MAX;
        let merged = merge_summaries(&[absurd.clone(), absurd], &Histogram::new());
        assert_eq!(merged.requests, u64::MAX);
    }

    #[test]
    fn the_longest_summary_fits_in_a_termination_message() {
        let all = u64::MAX;
        let mut pod = pod(u32::MAX, &Histogram::new(), 1);
        pod.run = "r".repeat(253);
        pod.started_at_microseconds = all;
        pod.summary = LoadSummary {
            requests_per_second: all,
            bytes_per_second: all,
            p50_microseconds: all,
            p90_microseconds: all,
            p99_microseconds: all,
            p999_microseconds: all,
            max_microseconds: all,
            mean_microseconds: all,
            requests: all,
            bytes: all,
            errors: Errors {
                connect: all,
                closed: all,
                timeout: all,
                protocol: all,
                status: all,
            },
            connections_opened: all,
            duration_microseconds: all,
        };
        let message = pod.to_termination_message().unwrap();
        assert_eq!(PodSummary::parse(&message).unwrap(), pod);
    }

    #[test]
    fn a_summary_that_does_not_fit_is_refused() {
        let mut pod = pod(0, &Histogram::new(), 1);
        pod.run = "r".repeat(TERMINATION_MESSAGE_BYTES_MAX);
        let refused = pod.to_termination_message();
        assert!(matches!(refused, Err(ReportError::TooLong { .. })));
    }

    #[test]
    fn a_message_of_another_format_or_of_none_is_refused() {
        let text = "panicked at main.rs";
        assert!(matches!(
            PodSummary::parse(text),
            Err(ReportError::Parse(_))
        ));
        let mut newer = pod(0, &Histogram::new(), 1);
        newer.version = 2;
        let text = newer.to_termination_message().unwrap();
        assert!(matches!(
            PodSummary::parse(&text),
            Err(ReportError::Version { found: 2 })
        ));
    }

    /// Its rate would enter the sum as if the pod had run to the end.
    #[test]
    fn a_load_that_was_stopped_is_no_report() {
        let counted = histogram(100, 10);
        let mut pod = pod(1, &counted, 1);
        pod.ended_early = true;
        let message = pod.to_termination_message().unwrap();
        let lines = encode_log_lines("r", 1, &counted);
        let refused = PodReport::read("r", 1, &message, lines.iter().map(String::as_str));
        assert!(matches!(refused, Err(ReportError::EndedEarly)));
    }

    #[test]
    fn a_report_needs_both_halves_of_the_same_pod() {
        let counted = histogram(100, 10);
        let message = pod(1, &counted, 1).to_termination_message().unwrap();
        let lines = encode_log_lines("r", 1, &counted);
        let read = |run, index, lines: &[String]| {
            PodReport::read(run, index, &message, lines.iter().map(String::as_str))
        };

        assert_eq!(read("r", 1, &lines).unwrap().histogram, counted);
        let refused = read("r", 2, &lines).unwrap_err();
        assert!(matches!(refused, ReportError::OtherPod { .. }));
        let refused = read("q", 1, &lines).unwrap_err();
        assert!(matches!(refused, ReportError::OtherPod { .. }));
        let refused = read("r", 1, &[]).unwrap_err();
        assert!(matches!(refused, ReportError::NoHistogram));
        let refused = read("r", 1, &encode_log_lines("r", 1, &histogram(100, 9))).unwrap_err();
        assert!(matches!(
            refused,
            ReportError::Count {
                requests: 10,
                counted: 9
            }
        ));
    }
}
