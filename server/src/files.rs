//! From a path to the bytes and fields of its answer.
//!
//! Guarantees:
//! - What is served was in the file system at most a second ago, a switched symbolic link included
//!   (this is how Kubernetes updates a volume made from a ConfigMap).
//! - An ETag is made from the very bytes it is sent with, so it is the same in every pod. It is
//!   missing as long as they may still change unseen: a file too large to be held in memory has
//!   none within two seconds of its last change, nor before it is read through once.
//! - Nothing outside the root is opened; see [`root::Root`].
//!
//! Not done: a file that is rewritten in place while it is being sent from the page cache can
//! reach the client with bytes of both versions in the part that the kernel has queued already.
//! The change is noticed before the last part is queued, and the connection reset, so that the
//! client does not take the response for complete. Files replaced by renaming are not affected.

mod cache;
mod entry;
mod hasher;
mod identity;
mod load;
mod media_type;
pub(crate) mod root;
mod view;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tunedweb_config::FileCacheConfig;

use cache::{Cache, Limits};
pub(crate) use entry::{Body, Entry};
use hasher::Hasher;
use load::Loader;
use root::Root;
pub(crate) use view::{Found, Lookup, View};

/// Bytes of file contents kept in memory, by all workers together: half of what a small pod with a
/// memory limit of 128 MiB has.
const CONTENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Why a path has no answer of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Nothing there that is served: 404.
    NotFound,
    /// There, but not readable, or a folder without an index: 403.
    Forbidden,
    /// A folder that was asked for without its slash: 301.
    Redirect,
    /// No file could be opened at the moment: 503.
    Unavailable,
}

/// The files beneath one root.
#[derive(Debug)]
pub(crate) struct Files {
    loader: Loader,
    cache: Arc<Cache<Entry>>,
    hasher: Hasher,
}

impl Files {
    /// `files_max`: files that may be kept open.
    pub(crate) fn new(
        root: Root,
        index: Vec<String>,
        config: &FileCacheConfig,
        files_max: usize,
    ) -> std::io::Result<Self> {
        let cache = Arc::new(Cache::new(Limits {
            entries_max: config.entries_max,
            bytes_max: CONTENT_BYTES_MAX,
            files_max,
            uses_min: config.uses_min,
            idle_ms: milliseconds(config.idle_timeout),
        }));
        let hasher = Hasher::start(Arc::clone(&cache))?;
        Ok(Self {
            loader: Loader::new(root, index),
            cache,
            hasher,
        })
    }

    /// The entry of `path`, and whether it is kept for the next request.
    fn find(&self, path: &[u8], now_ms: u64) -> Result<(Arc<Entry>, bool), Missing> {
        let known = self.cache.get(path);
        if let Some(entry) = &known {
            let checked = !entry.usage().claim_check(now_ms) && entry.usage().is_current(now_ms);
            if (checked && entry.has_its_bytes()) || self.loader.leads_to(path, entry) {
                return Ok((Arc::clone(entry), true));
            }
        }
        match (self.load(path), known) {
            (Ok(entry), _) => Ok(self.keep(path, entry, now_ms)),
            // no file can be opened now; what is in memory is as good as all that can be known
            (Err(Missing::Unavailable), Some(entry)) if self.loader.may_lead_to(path, &entry) => {
                Ok((entry, true))
            }
            (Err(missing), known) => {
                if known.is_some() {
                    self.cache.remove(path);
                }
                Err(missing)
            }
        }
    }

    /// Drops what was not asked for in time.
    pub(crate) fn drop_idle(&self, now_ms: u64) {
        self.cache.drop_idle(now_ms);
    }

    /// For the metrics: entries, bytes in memory, open files, and entries evicted so far.
    pub(crate) fn figures(&self) -> Figures {
        let (entries, content_bytes, open_files) = self.cache.size();
        Figures {
            entries,
            content_bytes,
            open_files,
            evicted: self.cache.evicted(),
        }
    }

    /// Loads `path`; without a descriptor left, files that the cache keeps open make room once.
    fn load(&self, path: &[u8]) -> Result<Entry, Missing> {
        let now = SystemTime::now();
        match self.loader.load(path, now) {
            Err(Missing::Unavailable) => {
                self.cache.close_some();
                self.loader.load(path, now)
            }
            result => result,
        }
    }

    fn keep(&self, path: &[u8], entry: Entry, now_ms: u64) -> (Arc<Entry>, bool) {
        entry.usage().mark_checked(now_ms);
        entry.usage().mark_used(now_ms);
        let entry = Arc::new(entry);
        let known = self.cache.get(path).is_some();
        let kept = (known || self.cache.note_use(path, now_ms))
            && self.cache.insert(path, Arc::clone(&entry), entry.weight());
        if kept {
            self.hasher.ask(path, &entry);
        }
        (entry, kept)
    }
}

/// State of the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) entries: usize,
    pub(crate) content_bytes: usize,
    pub(crate) open_files: usize,
    pub(crate) evicted: u64,
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
