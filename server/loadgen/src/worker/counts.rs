//! What a thread counts.

use rustix::io::Errno;
use tunedweb_measure::{Errors, Histogram};

use crate::response::Malformed;

/// Why a request failed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    Connect(Errno),
    Closed,
    Timeout,
    Protocol(Malformed),
}

/// What was counted, and an example for each kind of failure that can have several causes.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    /// Response times of the requests that were answered with a status below 400.
    pub(crate) histogram: Histogram,
    pub(crate) bytes: u64,
    pub(crate) errors: Errors,
    pub(crate) connections_opened: u64,
    /// Connections that this side had to close, as the peer did not.
    pub(crate) closed_first: u64,
    pub(crate) examples: Examples,
}

/// The first cause of its kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Examples {
    pub(crate) connect: Option<Errno>,
    pub(crate) protocol: Option<Malformed>,
    pub(crate) status: Option<u16>,
}

impl Counts {
    pub(crate) fn new() -> Self {
        Self {
            histogram: Histogram::new(),
            bytes: 0,
            errors: Errors::default(),
            connections_opened: 0,
            closed_first: 0,
            examples: Examples::default(),
        }
    }

    /// Counts a complete response.
    #[inline]
    pub(crate) fn answer(&mut self, status: u16, nanoseconds: u64) {
        if status < 400 {
            self.histogram.record(nanoseconds / 1_000);
        } else {
            self.errors.status += 1;
            self.examples.status.get_or_insert(status);
        }
    }

    pub(crate) fn fail(&mut self, failure: Failure) {
        match failure {
            Failure::Connect(error) => {
                self.errors.connect += 1;
                self.examples.connect.get_or_insert(error);
            }
            Failure::Closed => self.errors.closed += 1,
            Failure::Timeout => self.errors.timeout += 1,
            Failure::Protocol(reason) => {
                self.errors.protocol += 1;
                self.examples.protocol.get_or_insert(reason);
            }
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        let Self {
            histogram,
            bytes,
            errors,
            connections_opened,
            closed_first,
            examples,
        } = other;
        self.histogram.merge(histogram);
        self.bytes += bytes;
        self.errors.merge(errors);
        self.connections_opened += connections_opened;
        self.closed_first += closed_first;
        let mine = &mut self.examples;
        mine.connect = mine.connect.or(examples.connect);
        mine.protocol = mine.protocol.or(examples.protocol);
        mine.status = mine.status.or(examples.status);
    }
}
