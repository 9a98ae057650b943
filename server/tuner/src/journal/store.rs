//! The journal on disk: one file, replaced whole, under a lock that all callers of a node share.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use serde::Deserialize;

use super::{JOURNAL_VERSION, Journal};

/// The file, the same while it is written, and the lock.
const JOURNAL_FILE: &str = "journal.json";
const JOURNAL_FILE_NEW: &str = "journal.json.new";
const LOCK_FILE: &str = "lock";

/// Largest journal. An owner with 64 keys takes about 16 KiB; a node has at most 64 owners at a
/// time, so this is an order of magnitude more than is ever needed.
const JOURNAL_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Between two tries for the lock. A call holds it for milliseconds.
const LOCK_RETRY: Duration = Duration::from_millis(20);

/// Longest text that names a holder.
const HOLDER_BYTES_MAX: u64 = 512;

/// What is wrong with the journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The folder cannot be made.
    #[error("make the journal folder {path}")]
    MakeFolder {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The lock file cannot be opened or locked.
    #[error("lock {path}")]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another call holds the lock.
    #[error("{path} is still locked after {} seconds by {holder}", waited.as_secs())]
    Busy {
        /// The lock file.
        path: PathBuf,
        /// How long this call waited.
        waited: Duration,
        /// Who holds it, as it says of itself.
        holder: String,
    },
    /// The file cannot be read.
    #[error("read the journal {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file is not a journal. It is left as it is, since it may hold the only record of the
    /// values from before.
    #[error(
        "{path} is not a journal of this program; mend it, or move it away to start anew without \
         the values it remembers"
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A newer program wrote the file.
    #[error(
        "{path} has format {found}, this program reads up to {JOURNAL_VERSION}: use a newer one"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// There is no room for more.
    #[error("the journal would have {bytes} bytes, at most {JOURNAL_BYTES_MAX} are permitted")]
    Full {
        /// Size that it would have.
        bytes: usize,
    },
    /// The file cannot be written.
    #[error("write the journal {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// The journal of a node, locked until dropped.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    /// Closing it gives the lock back, also when the process is killed.
    _lock: File,
}

impl Store {
    /// Makes the folder where it is missing, waits for the lock, and reads the journal.
    pub(crate) fn open(folder: &Path, deadline: Duration) -> Result<(Self, Journal), JournalError> {
        // Only root reads it: it names every workload of the node.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|source| JournalError::MakeFolder {
                path: folder.to_owned(),
                source,
            })?;
        let lock = lock(&folder.join(LOCK_FILE), deadline)?;
        let journal = load(folder)?;
        Ok((
            Self {
                folder: folder.to_owned(),
                _lock: lock,
            },
            journal,
        ))
    }

    /// Replaces the journal. When this returns, the new one survives a power failure; when it fails
    /// or the process is killed in it, the former or the new one is there whole.
    pub(crate) fn save(&self, journal: &Journal) -> Result<(), JournalError> {
        let path = self.folder.join(JOURNAL_FILE);
        let wrong = |source| JournalError::Write {
            path: path.clone(),
            source,
        };
        let text = serde_json::to_vec_pretty(journal).map_err(|error| wrong(error.into()))?;
        if text.len() > JOURNAL_BYTES_MAX {
            return Err(JournalError::Full { bytes: text.len() });
        }
        replace(&self.folder, &text).map_err(wrong)
    }
}

/// Reads the journal without the lock: the file is only ever replaced whole.
pub(crate) fn load(folder: &Path) -> Result<Journal, JournalError> {
    let path = folder.join(JOURNAL_FILE);
    let text = match read_whole(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Journal::default()),
        Err(source) => return Err(JournalError::Read { path, source }),
    };
    let corrupt = |source| JournalError::Corrupt {
        path: path.clone(),
        source,
    };
    let head: Head = serde_json::from_slice(&text).map_err(corrupt)?;
    if head.version > JOURNAL_VERSION {
        return Err(JournalError::Newer {
            path,
            found: head.version,
        });
    }
    serde_json::from_slice(&text).map_err(corrupt)
}

/// What every format of the journal begins with.
#[derive(Deserialize)]
struct Head {
    version: u32,
}

fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let limit = JOURNAL_BYTES_MAX as u64 + 1;
    open_own(path, OFlags::RDONLY)?
        .take(limit)
        .read_to_end(&mut text)?;
    if text.len() > JOURNAL_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// Opens a plain file of this user and nothing else. What the journal says is written to the
/// kernel, so a file of another user is not believed; a link would have another file overwritten;
/// a pipe would make every caller of the node wait.
fn open_own(path: &Path, flags: OFlags) -> io::Result<File> {
    let careful = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags | careful, Mode::RUSR | Mode::WUSR)?;
    let file = File::from(file);
    let status = file.metadata()?;
    let is_own = status.uid() == rustix::process::geteuid().as_raw();
    if !status.is_file() || !is_own {
        return Err(io::Error::other("not a plain file of this user"));
    }
    Ok(file)
}

fn replace(folder: &Path, text: &[u8]) -> io::Result<()> {
    let new = folder.join(JOURNAL_FILE_NEW);
    // What a killed save left there, or anything else.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = open_own(&new, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
    file.write_all(text)?;
    file.sync_all()?;
    std::fs::rename(&new, folder.join(JOURNAL_FILE))?;
    File::open(folder)?.sync_all()
}

fn lock(path: &Path, deadline: Duration) -> Result<File, JournalError> {
    let wrong = |source| JournalError::Lock {
        path: path.to_owned(),
        source,
    };
    let file = open_own(path, OFlags::RDWR | OFlags::CREATE).map_err(wrong)?;
    let began = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(rustix::io::Errno::WOULDBLOCK) if began.elapsed() < deadline => {
                std::thread::sleep(LOCK_RETRY.min(deadline));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let holder = read_holder(&file);
                return Err(JournalError::Busy {
                    path: path.to_owned(),
                    waited: deadline,
                    holder,
                });
            }
            Err(error) => return Err(wrong(error.into())),
        }
    }
    write_holder(&file).map_err(wrong)?;
    Ok(file)
}

fn write_holder(mut file: &File) -> io::Result<()> {
    let host = rustix::system::uname();
    let holder = format!(
        "process {} on {}\n",
        std::process::id(),
        host.nodename().to_string_lossy()
    );
    file.set_len(0)?;
    file.write_all(holder.as_bytes())
}

fn read_holder(file: &File) -> String {
    let mut text = Vec::new();
    let read = file.take(HOLDER_BYTES_MAX).read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    if read.is_err() || text.is_empty() {
        "a process that did not say its name".to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::FileType;
    use std::error::Error as _;
    use std::os::unix::fs::PermissionsExt as _;

    const SHORT: Duration = Duration::from_millis(50);

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary folder")
    }

    fn journal_of(sequence: u64) -> Journal {
        Journal {
            sequence,
            ..Journal::default()
        }
    }

    #[test]
    fn what_is_saved_is_read_again_and_readable_by_root_alone() {
        let folder = folder();
        let below = folder.path().join("not/yet/there");
        let (store, journal) = Store::open(&below, SHORT).expect("a new journal");
        assert_eq!(journal, Journal::default());
        store.save(&journal_of(7)).expect("a writable folder");
        drop(store);
        let (_, journal) = Store::open(&below, SHORT).expect("the journal");
        assert_eq!(journal.sequence, 7);
        let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode();
        assert_eq!(mode(&below) & 0o777, 0o700);
        assert_eq!(mode(&below.join(JOURNAL_FILE)) & 0o777, 0o600);
    }

    #[test]
    fn who_holds_the_lock_is_told_and_its_end_gives_it_back() {
        let folder = folder();
        let held = Store::open(folder.path(), SHORT).expect("the first");
        let error = Store::open(folder.path(), SHORT).expect_err("the second");
        let text = error.to_string();
        assert!(
            text.contains(&format!("process {}", std::process::id())),
            "{text}"
        );
        drop(held);
        Store::open(folder.path(), SHORT).expect("the lock is free");
    }

    #[test]
    fn what_a_killed_save_left_behind_does_not_matter() {
        let folder = folder();
        let (store, _) = Store::open(folder.path(), SHORT).expect("a new journal");
        store.save(&journal_of(1)).expect("a writable folder");
        std::fs::write(folder.path().join(JOURNAL_FILE_NEW), "{\"vers").expect("a torn file");
        assert_eq!(load(folder.path()).expect("the whole one").sequence, 1);
        store.save(&journal_of(2)).expect("a writable folder");
        assert_eq!(load(folder.path()).expect("the new one").sequence, 2);
    }

    #[test]
    fn a_torn_foreign_or_newer_file_is_an_error_and_is_left() {
        for text in [
            "",
            "{",
            "[]",
            "{\"version\": 1}",
            "{\"version\": 2, \"more\": true}",
        ] {
            let folder = folder();
            let path = folder.path().join(JOURNAL_FILE);
            std::fs::write(&path, text).expect("a file");
            let error = Store::open(folder.path(), SHORT).expect_err("not our journal");
            match error {
                JournalError::Newer { found, .. } => assert_eq!(found, 2),
                JournalError::Corrupt { .. } => assert!(error.source().is_some()),
                other => panic!("{text:?}: {other}"),
            }
            assert_eq!(std::fs::read_to_string(&path).expect("the file"), text);
        }
    }

    /// A thing in the place of one of our files, and whether it may stand in the way.
    fn refuses(put: impl Fn(&Path), file: &str) -> bool {
        let folder = folder();
        put(&folder.path().join(file));
        let opened = Store::open(folder.path(), SHORT);
        opened
            .and_then(|(store, _)| store.save(&journal_of(1)))
            .is_err()
    }

    #[test]
    fn a_pipe_a_link_or_a_folder_in_place_of_a_file_is_neither_followed_nor_waited_for() {
        let victim = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(victim.path(), "precious").expect("a file");
        let pipe = |path: &Path| {
            let mode = Mode::RUSR | Mode::WUSR;
            rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, mode, 0).expect("a pipe");
        };
        let link = |path: &Path| std::os::unix::fs::symlink(victim.path(), path).expect("a link");
        let directory = |path: &Path| std::fs::create_dir(path).expect("a folder");
        for file in [JOURNAL_FILE, LOCK_FILE] {
            assert!(refuses(pipe, file), "pipe {file}");
            assert!(refuses(link, file), "link {file}");
            assert!(refuses(directory, file), "folder {file}");
        }
        assert!(!refuses(pipe, JOURNAL_FILE_NEW));
        assert!(!refuses(link, JOURNAL_FILE_NEW));
        assert!(refuses(directory, JOURNAL_FILE_NEW));
        let left = std::fs::read_to_string(victim.path()).expect("the file");
        assert_eq!(left, "precious");
    }

    #[test]
    fn a_file_of_another_user_is_not_believed() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        open_own(file.path(), OFlags::RDONLY).expect("a file of this user");
        let foreign = if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(file.path(), Some(1), None).expect("root may");
            file.path()
        } else {
            Path::new("/proc/version")
        };
        let error = open_own(foreign, OFlags::RDONLY).expect_err("a file of another");
        assert!(error.to_string().contains("of this user"), "{error}");
    }

    #[test]
    fn a_file_larger_than_any_journal_is_not_read_to_its_end() {
        let folder = folder();
        let file = File::create(folder.path().join(JOURNAL_FILE)).expect("a file");
        // Without blocks of its own, so that it takes no space.
        file.set_len(1 << 40).expect("a sparse file");
        let error = load(folder.path()).expect_err("too large");
        assert!(matches!(error, JournalError::Read { .. }), "{error}");
    }

    #[test]
    fn a_journal_that_would_be_too_large_is_not_written() {
        let folder = folder();
        let (store, _) = Store::open(folder.path(), SHORT).expect("a new journal");
        let mut journal = Journal::default();
        journal
            .entry_mut(&"x".repeat(JOURNAL_BYTES_MAX), None, "boot")
            .baseline = Some("1".to_owned());
        let error = store.save(&journal).expect_err("too large");
        assert!(matches!(error, JournalError::Full { .. }));
        assert!(!folder.path().join(JOURNAL_FILE).exists());
    }
}
