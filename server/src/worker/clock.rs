//! The time as a worker sees it: it stands still between two ticks, so that asking costs nothing.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant, SystemTime};

/// Between two ticks. Timeouts are at most two of these late; a Date is right to the second, since
/// ticks fall on the beginnings of seconds.
pub(crate) const TICK: Duration = Duration::from_millis(250);

/// A worker's clock.
#[derive(Debug)]
pub(crate) struct Clock {
    started: Instant,
    now_ms: Cell<u64>,
    second: Cell<u64>,
    /// The fields that every response has, with today's date.
    fields: RefCell<Vec<u8>>,
}

impl Clock {
    /// `started` is the same for all workers, since they compare times.
    pub(crate) fn new(started: Instant) -> Self {
        let clock = Self {
            started,
            now_ms: Cell::new(0),
            second: Cell::new(u64::MAX),
            fields: RefCell::default(),
        };
        clock.tick(SystemTime::now());
        clock
    }

    /// Moves on to now, and returns the time to the next tick.
    pub(crate) fn tick(&self, now: SystemTime) -> Duration {
        self.now_ms.set(milliseconds(self.started.elapsed()));
        let since_1970 = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let second = since_1970.as_secs();
        if self.second.replace(second) != second {
            let date =
                httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(second));
            let mut fields = self.fields.borrow_mut();
            fields.clear();
            fields.extend_from_slice(b"\r\nServer: tunedweb\r\nDate: ");
            fields.extend_from_slice(date.as_bytes());
            fields.extend_from_slice(b"\r\n");
        }
        let into_tick = since_1970.subsec_nanos() % TICK.subsec_nanos();
        TICK.saturating_sub(Duration::from_nanos(u64::from(into_tick)))
    }

    /// Milliseconds since the start of the server.
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms.get()
    }

    /// When `duration` will be over for sure, on this clock: it may be a tick behind.
    pub(crate) fn deadline_ms(&self, duration: Duration) -> u64 {
        self.now_ms() + milliseconds(duration) + milliseconds(TICK)
    }

    /// Appends the end of the status line and the fields `Server` and `Date`.
    pub(crate) fn append_fields(&self, output: &mut Vec<u8>) {
        output.extend_from_slice(&self.fields.borrow());
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_fall_on_quarters_of_seconds() {
        let clock = Clock::new(Instant::now());
        let at = |ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
        assert_eq!(clock.tick(at(10_000)), Duration::from_millis(250));
        assert_eq!(clock.tick(at(10_240)), Duration::from_millis(10));
    }

    #[test]
    fn the_date_follows_the_clock() {
        let clock = Clock::new(Instant::now());
        let date = |second| {
            clock.tick(SystemTime::UNIX_EPOCH + Duration::from_secs(second));
            let mut output = Vec::new();
            clock.append_fields(&mut output);
            String::from_utf8(output).unwrap()
        };
        assert!(date(784_111_777).contains("\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"));
        assert!(date(784_111_778).contains("08:49:38"));
    }
}
