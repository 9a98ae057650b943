//! Reading a version of a file from the file system.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::SystemTime;

use rustix::io::{Errno, pread};
use sha2::{Digest, Sha256};

use super::Missing;
use super::entry::{Body, Entry};
use super::identity::{Identity, Kind};
use super::root::Root;

/// Largest content that is kept in memory and sent in one piece with its head. On loopback the copy
/// costs a request of 8 KiB a sixth less than `MSG_MORE` and sendfile, of 16 KiB as much within the
/// noise, of 32 KiB a quarter more (CPU time a request, medians of nine interleaved rounds).
pub(crate) const CONTENT_BYTES_MAX: u64 = 16 * 1024;

/// Largest file that is read through at once for its ETag. It is also the largest a ConfigMap can
/// carry, so all of those have their ETag from the first response after they settled; the reading
/// takes 1 to 3 ms. Larger ones are read through on a thread of their own.
const HASH_AT_ONCE_BYTES_MAX: u64 = 1024 * 1024;

/// Times that a file is read again because it changed meanwhile.
const TRIES: u32 = 5;

/// Looks paths up and reads files.
#[derive(Debug)]
pub(crate) struct Loader {
    root: Root,
    index: Vec<String>,
}

/// What one reading gave.
struct Read {
    identity: Identity,
    body: Body,
    etag: Option<Box<str>>,
    provisional: bool,
}

impl Loader {
    pub(crate) fn new(root: Root, index: Vec<String>) -> Self {
        Self { root, index }
    }

    /// The version of `path` that is there now.
    pub(crate) fn load(&self, path: &[u8], now: SystemTime) -> Result<Entry, Missing> {
        if !path.ends_with(b"/") {
            return self.load_file(&path[1..], now);
        }
        for name in &self.index {
            match self.load_file(&in_folder(path, name), now) {
                Err(Missing::NotFound | Missing::Redirect) => {}
                result => return result,
            }
        }
        match self.root.locate(or_dot(&path[1..])) {
            Ok(_) => Err(Missing::Forbidden),
            Err(error) => Err(missing(error)),
        }
    }

    /// Whether `path` still leads to the version in `entry`.
    pub(crate) fn leads_to(&self, path: &[u8], entry: &Entry) -> bool {
        !entry.is_provisional() && self.may_lead_to(path, entry)
    }

    /// The same, but for a change so soon after the version was read that it cannot be seen.
    pub(crate) fn may_lead_to(&self, path: &[u8], entry: &Entry) -> bool {
        let found = if path.ends_with(b"/") {
            self.index
                .iter()
                .find_map(|name| self.identity(&in_folder(path, name)))
        } else {
            self.identity(&path[1..])
        };
        found.is_some_and(|identity| identity == *entry.identity()) && entry.has_its_bytes()
    }

    fn identity(&self, relative: &[u8]) -> Option<Identity> {
        match Kind::from(&self.root.stat(relative).ok()?) {
            Kind::File(identity) => Some(identity),
            Kind::Folder | Kind::Other => None,
        }
    }

    fn load_file(&self, relative: &[u8], now: SystemTime) -> Result<Entry, Missing> {
        let file = self.root.open_file(relative).map_err(missing)?;
        let Read {
            identity,
            body,
            etag,
            provisional,
        } = match Kind::of(&file).map_err(missing)? {
            Kind::File(identity) if identity.length <= CONTENT_BYTES_MAX => {
                read_content(&file, identity, now).map_err(missing)?
            }
            Kind::File(identity) => read_large(file, identity, now).map_err(missing)?,
            Kind::Folder => return Err(Missing::Redirect),
            Kind::Other => return Err(Missing::NotFound),
        };
        Ok(Entry::new(relative, identity, body, etag, provisional, now))
    }
}

/// Reads the whole content, again if the file changed meanwhile. Should it never rest, the last
/// reading is used: its ETag is true to its bytes in any case.
fn read_content(file: &OwnedFd, first: Identity, now: SystemTime) -> Result<Read, Errno> {
    let mut before = first;
    let mut tries = 1;
    loop {
        let bytes = read_whole(file, before.length)?;
        let Kind::File(after) = Kind::of(file)? else {
            return Err(Errno::IO);
        };
        let rested = after == before && bytes.len() as u64 == after.length;
        if rested || tries == TRIES {
            let etag = Some(etag(Sha256::new_with_prefix(&bytes)));
            let provisional = !rested || !after.is_settled(now);
            return Ok(Read {
                identity: after,
                body: Body::Memory(bytes.into()),
                etag,
                provisional,
            });
        }
        before = after;
        tries += 1;
    }
}

/// Reads to the end, or to a byte more than may be kept.
fn read_whole(file: &OwnedFd, length: u64) -> Result<Vec<u8>, Errno> {
    let room = usize::try_from(length.min(CONTENT_BYTES_MAX)).map_err(|_| Errno::FBIG)? + 1;
    let mut bytes = vec![0; room];
    let mut filled = 0;
    while filled < room {
        match pread(file, &mut bytes[filled..], filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// A file that stays in the page cache. It gets an ETag only once it has settled, since from then
/// on a change of its bytes cannot go unseen.
fn read_large(file: OwnedFd, identity: Identity, now: SystemTime) -> Result<Read, Errno> {
    let settled = identity.is_settled(now);
    let etag = if settled && identity.length <= HASH_AT_ONCE_BYTES_MAX {
        hash_file(&file, &identity, || true)?
    } else {
        None
    };
    let provisional = !settled || (etag.is_none() && !wants_hasher(&identity));
    Ok(Read {
        identity,
        body: Body::File(Arc::new(file)),
        etag,
        provisional,
    })
}

/// Whether the ETag is left to the thread that reads large files through.
pub(crate) fn wants_hasher(identity: &Identity) -> bool {
    identity.length > HASH_AT_ONCE_BYTES_MAX
}

/// Reads the file through; none: it changed meanwhile, or `go_on` said no.
pub(crate) fn hash_file(
    file: &OwnedFd,
    identity: &Identity,
    mut go_on: impl FnMut() -> bool,
) -> Result<Option<Box<str>>, Errno> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 128 * 1024];
    let mut at = 0;
    while at < identity.length {
        if !go_on() {
            return Ok(None);
        }
        match pread(file, &mut buffer, at) {
            Ok(0) => return Ok(None),
            Ok(read) => {
                hash.update(&buffer[..read]);
                at += read as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    let unchanged = matches!(Kind::of(file)?, Kind::File(now) if now.has_bytes_of(identity));
    Ok(unchanged.then(|| etag(hash)))
}

fn etag(hash: Sha256) -> Box<str> {
    tunedweb_config::digest_etag(&hash.finalize().into()).into()
}

fn in_folder(path: &[u8], name: &str) -> Vec<u8> {
    [&path[1..], name.as_bytes()].concat()
}

/// The root itself has no name beneath the root.
fn or_dot(relative: &[u8]) -> &[u8] {
    if relative.is_empty() { b"." } else { relative }
}

/// A link out of the root (`EXDEV`) is as good as no file: what is outside is nobody's business.
fn missing(error: Errno) -> Missing {
    match error {
        Errno::ACCESS | Errno::PERM => Missing::Forbidden,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO => Missing::Unavailable,
        _ => Missing::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::Duration;
    use tempfile::TempDir;

    fn loader(files: &[(&str, &[u8])]) -> (TempDir, Loader) {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let root = Root::open(folder.path()).unwrap();
        (
            folder,
            Loader::new(root, vec!["index.html".to_owned(), "b.html".to_owned()]),
        )
    }

    /// A time at which files written now have settled.
    fn later() -> SystemTime {
        SystemTime::now() + Duration::from_secs(10)
    }

    #[test]
    fn equal_contents_have_equal_etags_whatever_their_times() {
        let (_folder, loader) = loader(&[("a", b"x"), ("b", b"x"), ("c", b"y")]);
        let etag = |path: &str| loader.load(path.as_bytes(), later()).unwrap().etag.unwrap();
        assert_eq!(etag("/a"), etag("/b"));
        assert_ne!(etag("/a"), etag("/c"));
        // echo -n x | sha256sum
        assert_eq!(&*etag("/a"), "\"2d711642b726b04401627ca9fbac32f5\"");
    }

    #[test]
    fn index_names_are_tried_in_order() {
        let (_folder, loader) = loader(&[
            ("a/b.html", b"b"),
            ("c/index.html", b"i"),
            ("c/b.html", b"b"),
            ("d/x", b"x"),
        ]);
        let length = |path: &str| match loader.load(path.as_bytes(), later()) {
            Ok(Entry {
                body: Body::Memory(bytes),
                ..
            }) => Ok(bytes.to_vec()),
            Ok(entry) => panic!("{entry:?}"),
            Err(missing) => Err(missing),
        };
        assert_eq!(length("/a/"), Ok(b"b".to_vec()));
        assert_eq!(length("/c/"), Ok(b"i".to_vec()));
        assert_eq!(length("/d/"), Err(Missing::Forbidden));
        assert_eq!(length("/"), Err(Missing::Forbidden));
        assert_eq!(length("/e/"), Err(Missing::NotFound));
        assert_eq!(length("/a"), Err(Missing::Redirect));
        assert_eq!(length("/a/b.html/"), Err(Missing::NotFound));
    }

    #[test]
    fn a_new_index_before_the_old_one_is_another_version() {
        let (folder, loader) = loader(&[("b.html", b"b")]);
        let entry = loader.load(b"/", later()).unwrap();
        assert!(loader.leads_to(b"/", &entry));
        fs::write(folder.path().join("index.html"), "i").unwrap();
        assert!(!loader.leads_to(b"/", &entry));
    }

    #[test]
    fn what_changed_a_moment_ago_is_read_again_at_the_next_check() {
        let (_folder, loader) = loader(&[("a", b"x")]);
        let fresh = loader.load(b"/a", SystemTime::now()).unwrap();
        assert!(!loader.leads_to(b"/a", &fresh));
        let settled = loader.load(b"/a", later()).unwrap();
        assert!(loader.leads_to(b"/a", &settled));
    }

    #[test]
    fn a_large_file_gets_its_etag_once_it_settled() {
        let content = vec![b'x'; 70_000];
        let (folder, loader) = loader(&[("a", &content)]);
        assert!(
            loader
                .load(b"/a", SystemTime::now())
                .unwrap()
                .etag
                .is_none()
        );
        let entry = loader.load(b"/a", later()).unwrap();
        assert!(entry.etag.is_some() && entry.has_its_bytes());
        fs::write(folder.path().join("a"), vec![b'y'; 70_001]).unwrap();
        assert!(!entry.has_its_bytes());
    }

    #[test]
    fn a_huge_file_is_left_to_the_hashing_thread() {
        let content = vec![b'x'; 1_100_000];
        let (_folder, loader) = loader(&[("a", &content)]);
        let entry = loader.load(b"/a", later()).unwrap();
        assert!(entry.etag.is_none() && loader.leads_to(b"/a", &entry));
    }

    #[test]
    fn pipes_are_not_served_and_do_not_block() {
        let (folder, loader) = loader(&[]);
        let path = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from(0o600)).unwrap();
        assert_eq!(
            loader.load(b"/pipe", later()).unwrap_err(),
            Missing::NotFound
        );
    }
}
