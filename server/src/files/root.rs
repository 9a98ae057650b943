//! The folder that is served, and the only way to a file in it.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat, openat, openat2, statat};
use rustix::io::Errno;

/// Why the folder cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// It cannot be opened.
    #[error("cannot open the root folder {path:?}; name an existing folder that may be read")]
    OpenRoot {
        /// As set.
        path: PathBuf,
        /// What the kernel said.
        source: Errno,
    },
    /// The kernel does not confine lookups to it.
    #[error(
        "this kernel, or the seccomp profile of this container, refuses openat2(2), which confines \
         every lookup to the root folder {path:?}; use Linux 5.6 or later and a profile that \
         permits openat2, as the default profiles of containerd and Docker do"
    )]
    Confine {
        /// As set.
        path: PathBuf,
        /// What the kernel said.
        source: Errno,
    },
}

/// An open folder. Every lookup is confined to what is beneath it by the kernel, at the time of the
/// lookup: symbolic links that lead out of it, or are absolute, do not resolve.
#[derive(Debug)]
pub(crate) struct Root {
    folder: OwnedFd,
}

impl Root {
    pub(crate) fn open(path: &Path) -> Result<Self, RootError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder =
            openat(CWD, path, flags, Mode::empty()).map_err(|source| RootError::OpenRoot {
                path: path.to_owned(),
                source,
            })?;
        let root = Self { folder };
        match root.open_beneath(b".", OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(_) => Ok(root),
            Err(source @ (Errno::NOSYS | Errno::PERM)) => Err(RootError::Confine {
                path: path.to_owned(),
                source,
            }),
            Err(source) => Err(RootError::OpenRoot {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// Opens a file to read it. `O_NONBLOCK` keeps a named pipe from blocking the worker.
    pub(crate) fn open_file(&self, relative: &[u8]) -> Result<OwnedFd, Errno> {
        self.open_beneath(relative, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
    }

    /// Opens a file or folder only to learn that it is there.
    pub(crate) fn locate(&self, relative: &[u8]) -> Result<OwnedFd, Errno> {
        self.open_beneath(relative, OFlags::PATH)
    }

    /// What a name leads to, without opening it. This lookup is not confined to the root, so it may
    /// only be held against what was opened before; it needs no free descriptor.
    pub(crate) fn stat(&self, relative: &[u8]) -> Result<Stat, Errno> {
        statat(&self.folder, relative, AtFlags::empty())
    }

    fn open_beneath(&self, relative: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        // a rename elsewhere during the lookup of a `..` gives EAGAIN (openat2(2)); a handful of
        // renames in the time of one lookup is more than any deployment does
        const TRIES: u32 = 8;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mut tries = 1;
        loop {
            let flags = flags | OFlags::CLOEXEC;
            match openat2(&self.folder, relative, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) if tries < TRIES => tries += 1,
                result => return result,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_within_the_root_resolve_and_links_out_of_it_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join("root").join(name);
        std::fs::create_dir_all(at("..v1")).unwrap();
        std::fs::write(at("..v1/a"), "a").unwrap();
        std::fs::write(folder.path().join("secret"), "s").unwrap();
        symlink("..v1", at("..data")).unwrap();
        symlink("..data/a", at("a")).unwrap();
        symlink("../secret", at("out")).unwrap();
        symlink(folder.path().join("root/a"), at("absolute")).unwrap();
        let root = Root::open(&folder.path().join("root")).unwrap();
        assert!(root.open_file(b"a").is_ok());
        assert_eq!(root.open_file(b"out").unwrap_err(), Errno::XDEV);
        assert_eq!(root.open_file(b"absolute").unwrap_err(), Errno::XDEV);
        assert_eq!(root.open_file(b"../secret").unwrap_err(), Errno::XDEV);
    }

    #[test]
    fn a_missing_root_says_so() {
        let error = Root::open(Path::new("/nonexistent/folder")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/folder"), "{error}");
    }
}
