//! The thread that reads large files through for their ETags, so that no worker stands still.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::SystemTime;

use super::cache::Cache;
use super::entry::{Body, Entry};
use super::load::{hash_file, wants_hasher};

/// Files that wait. One that finds no place is asked for again when it is next loaded.
const QUEUE_MAX: usize = 1_024;

/// Largest file that is read through, some seconds of one core's time. A larger one has no ETag;
/// `Last-Modified` serves instead.
const HASH_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// Handle of the thread; dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Hasher {
    queue: Option<SyncSender<Job>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Job {
    path: Box<[u8]>,
    entry: Arc<Entry>,
}

impl Hasher {
    pub(crate) fn start(cache: Arc<Cache<Entry>>) -> std::io::Result<Self> {
        let (queue, jobs) = sync_channel(QUEUE_MAX);
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new()
            .name("hasher".to_owned())
            .spawn({
                let stop = Arc::clone(&stop);
                move || run(&jobs, &cache, &stop)
            })?;
        Ok(Self {
            queue: Some(queue),
            stop,
            thread: Some(thread),
        })
    }

    /// Has the ETag of `entry` computed if it lacks one and can have one.
    pub(crate) fn ask(&self, path: &[u8], entry: &Arc<Entry>) {
        let identity = entry.identity();
        let wanted = entry.etag.is_none()
            && wants_hasher(identity)
            && identity.length <= HASH_BYTES_MAX
            && !entry.is_provisional();
        let Some(queue) = self.queue.as_ref().filter(|_| wanted) else {
            return;
        };
        match queue.try_send(Job {
            path: path.into(),
            entry: Arc::clone(entry),
        }) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(job)) => {
                tracing::warn!(
                    path = %String::from_utf8_lossy(&job.path),
                    "no ETag for now: too many large files wait to be read through"
                );
            }
        }
    }
}

impl Drop for Hasher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.queue = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that computes ETags has panicked");
        }
    }
}

fn run(jobs: &Receiver<Job>, cache: &Cache<Entry>, stop: &AtomicBool) {
    // on Linux the niceness is the thread's own (setpriority(2)): workers go first
    if let Err(error) = rustix::process::nice(10) {
        tracing::debug!(%error, "the thread that computes ETags keeps its priority");
    }
    for Job { path, entry } in jobs {
        let Body::File(file) = &entry.body else {
            continue;
        };
        let go_on = || !stop.load(Ordering::Relaxed) && !entry.usage().is_retired();
        match hash_file(file, entry.identity(), go_on) {
            Ok(Some(etag)) => {
                let hashed = entry.with_etag(&path, etag, SystemTime::now());
                hashed.usage().mark_used(entry.usage().used_ms());
                cache.replace(&path, &entry, Arc::new(hashed));
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(
                path = %String::from_utf8_lossy(&path),
                %error,
                "no ETag: cannot read the file through"
            ),
        }
    }
}
