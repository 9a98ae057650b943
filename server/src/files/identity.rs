//! How two states of a file are told apart.

use std::os::fd::AsFd;
use std::time::{Duration, SystemTime};

use rustix::fs::{FileType, Stat, fstat};
use rustix::io::Errno;

/// What `fstat(2)` says of a file: another version has another identity, as long as the file had
/// settled ([`Identity::is_settled`]) when the first was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    pub(crate) length: u64,
    /// Seconds and nanoseconds since 1970.
    modified: (i64, i64),
    changed: (i64, i64),
}

/// What a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File(Identity),
    Folder,
    /// A device, a pipe, a socket: nothing that is served.
    Other,
}

impl Kind {
    pub(crate) fn of(file: &impl AsFd) -> Result<Self, Errno> {
        Ok(Self::from(&fstat(file)?))
    }
}

impl From<&Stat> for Kind {
    fn from(stat: &Stat) -> Self {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Self::File(Identity::from(stat)),
            FileType::Directory => Self::Folder,
            _ => Self::Other,
        }
    }
}

impl Identity {
    /// Seconds since 1970 of the last modification.
    pub(crate) fn modified_seconds(&self) -> u64 {
        u64::try_from(self.modified.0).unwrap_or(0)
    }

    /// Whether the bytes are the same, by what a write changes. Unlike equality this does not count
    /// a rename over the file or its removal, which change `ctime` but leave the bytes.
    pub(crate) fn has_bytes_of(&self, other: &Self) -> bool {
        self.length == other.length && self.modified == other.modified
    }

    /// Whether the last change is so long ago that a later one must have another time stamp. File
    /// systems store times in steps: 4 ms on most, 1 s on ext3 and some network ones, 2 s on FAT.
    pub(crate) fn is_settled(&self, now: SystemTime) -> bool {
        const STEP_MAX: Duration = Duration::from_secs(2);
        let Some(seconds) = u64::try_from(self.changed.0).ok() else {
            return true;
        };
        let nanoseconds = u64::try_from(self.changed.1).unwrap_or(0);
        let changed = SystemTime::UNIX_EPOCH
            + Duration::from_secs(seconds)
            + Duration::from_nanos(nanoseconds);
        // a time in the future is as good as now: it says nothing about what may follow
        now.duration_since(changed).is_ok_and(|age| age > STEP_MAX)
    }
}

impl From<&Stat> for Identity {
    #[allow(
        clippy::unnecessary_cast,
        clippy::useless_conversion,
        reason = "widths differ by target"
    )]
    fn from(stat: &Stat) -> Self {
        Self {
            device: u64::from(stat.st_dev),
            inode: u64::from(stat.st_ino),
            length: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (
                stat.st_mtime as i64,
                i64::try_from(stat.st_mtime_nsec).unwrap_or(0),
            ),
            changed: (
                stat.st_ctime as i64,
                i64::try_from(stat.st_ctime_nsec).unwrap_or(0),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    fn identity(file: &File) -> Identity {
        match Kind::of(file).unwrap() {
            Kind::File(identity) => identity,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_removed_file_keeps_its_bytes_but_not_its_identity() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "a").unwrap();
        fs::hard_link(&path, folder.path().join("b")).unwrap();
        let file = File::open(&path).unwrap();
        let before = identity(&file);
        let deadline = std::time::Instant::now() + Duration::from_secs(5);
        fs::remove_file(&path).unwrap();
        // the clock of the file system may not have moved on between the two changes
        while identity(&file) == before && std::time::Instant::now() < deadline {
            fs::hard_link(folder.path().join("b"), folder.path().join("c")).unwrap();
            fs::remove_file(folder.path().join("c")).unwrap();
        }
        assert_ne!(identity(&file), before);
        assert!(identity(&file).has_bytes_of(&before));
    }

    #[test]
    fn a_file_settles_two_seconds_after_its_last_change() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "a").unwrap();
        let identity = identity(&File::open(folder.path().join("a")).unwrap());
        let now = SystemTime::now();
        assert!(!identity.is_settled(now));
        assert!(identity.is_settled(now + Duration::from_secs(3)));
        assert!(!identity.is_settled(SystemTime::UNIX_EPOCH));
    }
}
