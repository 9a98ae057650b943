//! One version of one file, ready to be answered with.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::identity::{Identity, Kind};
use super::media_type;

/// How long an entry is used before the file system is asked again. With a clock that moves every
/// 250 ms, what is served was true at most a second ago.
const FRESH_MS: u64 = 750;

/// One version of one file. What is in it never changes; another version is another entry.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The fields of a 200 from `Content-Type` on, with the empty line that ends the head.
    pub(crate) fields: Box<[u8]>,
    /// The fields that a 304 shares with it (RFC 9110 section 15.4.5), with the empty line.
    pub(crate) validators: Box<[u8]>,
    /// Strong, with its quotes; none while it is not known.
    pub(crate) etag: Option<Box<str>>,
    /// `Last-Modified`, in seconds since 1970.
    pub(crate) modified: u64,
    pub(crate) body: Body,
    identity: Identity,
    /// To be loaded anew at the next check, whatever the file system says then.
    provisional: bool,
    usage: Usage,
}

/// Where the bytes are.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    /// Read whole, so that they are those that the ETag was made from.
    Memory(Box<[u8]>),
    /// In the file, which is checked before each response and before the end of each.
    File(Arc<OwnedFd>),
}

/// Written by any worker, seldom; read by all.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    used_ms: AtomicU64,
    checked_ms: AtomicU64,
    retired: AtomicBool,
}

impl Entry {
    /// `now` bounds `Last-Modified`, which may not lie in the future (RFC 9110 section 8.8.2.1).
    pub(crate) fn new(
        path: &[u8],
        identity: Identity,
        body: Body,
        etag: Option<Box<str>>,
        provisional: bool,
        now: SystemTime,
    ) -> Self {
        let now = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .as_ref()
            .map_or(0, Duration::as_secs);
        let modified = identity.modified_seconds().min(now);
        let date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(modified));
        let tag = etag
            .as_deref()
            .map_or_else(String::new, |etag| format!("ETag: {etag}\r\n"));
        let validators = format!("Last-Modified: {date}\r\n{tag}\r\n");
        let length = match &body {
            Body::Memory(bytes) => bytes.len() as u64,
            Body::File(_) => identity.length,
        };
        let media_type = media_type::of(path);
        let fields =
            format!("Content-Type: {media_type}\r\nContent-Length: {length}\r\n{validators}");
        Self {
            fields: fields.into_bytes().into(),
            validators: validators.into_bytes().into(),
            etag,
            modified,
            body,
            identity,
            provisional,
            usage: Usage::default(),
        }
    }

    /// The same version with the ETag that was computed meanwhile.
    pub(crate) fn with_etag(&self, path: &[u8], etag: Box<str>, now: SystemTime) -> Self {
        Self::new(
            path,
            self.identity,
            self.body.clone(),
            Some(etag),
            false,
            now,
        )
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn is_provisional(&self) -> bool {
        self.provisional
    }

    /// Whether the bytes behind a [`Body::File`] are still those of this version.
    pub(crate) fn has_its_bytes(&self) -> bool {
        match &self.body {
            Body::Memory(_) => true,
            Body::File(file) => {
                matches!(Kind::of(&**file), Ok(Kind::File(now)) if now.has_bytes_of(&self.identity))
            }
        }
    }

    pub(crate) fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Bytes of memory and open files that the entry takes.
    pub(crate) fn weight(&self) -> (usize, usize) {
        match &self.body {
            Body::Memory(bytes) => (bytes.len(), 0),
            Body::File(_) => (0, 1),
        }
    }
}

impl Usage {
    /// Whether the entry may be used without asking the file system.
    pub(crate) fn is_current(&self, now_ms: u64) -> bool {
        !self.is_retired()
            && now_ms.saturating_sub(self.checked_ms.load(Ordering::Relaxed)) < FRESH_MS
    }

    /// Takes it on the caller to ask the file system; false: another thread does so at the moment.
    pub(crate) fn claim_check(&self, now_ms: u64) -> bool {
        let checked = self.checked_ms.load(Ordering::Relaxed);
        now_ms.saturating_sub(checked) >= FRESH_MS
            && self
                .checked_ms
                .compare_exchange(checked, now_ms, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    pub(crate) fn mark_checked(&self, now_ms: u64) {
        self.checked_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Reads before it writes: a line that is only read can stay in every core's cache.
    pub(crate) fn mark_used(&self, now_ms: u64) {
        if self.used_ms.load(Ordering::Relaxed) != now_ms {
            self.used_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    pub(crate) fn used_ms(&self) -> u64 {
        self.used_ms.load(Ordering::Relaxed)
    }

    /// Tells every worker that holds the entry to let it go.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }
}

impl AsRef<Usage> for Entry {
    fn as_ref(&self) -> &Usage {
        &self.usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_thread_checks_an_entry_at_a_time() {
        let usage = Usage::default();
        assert!(usage.is_current(FRESH_MS - 1));
        assert!(!usage.is_current(FRESH_MS));
        assert!(usage.claim_check(FRESH_MS));
        assert!(!usage.claim_check(FRESH_MS));
        assert!(usage.is_current(FRESH_MS));
        usage.retire();
        assert!(!usage.is_current(FRESH_MS));
    }
}
