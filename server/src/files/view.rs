//! One worker's own table of entries: what it asked for before is found without a lock and without
//! touching a line of memory that another core writes.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use super::{Entry, Files, Missing};

/// Counting references within a worker costs no atomic operation.
pub(crate) type Found = Rc<Arc<Entry>>;

/// The files as one worker sees them.
#[derive(Debug)]
pub(crate) struct View {
    files: Arc<Files>,
    own: RefCell<HashMap<Box<[u8]>, Found>>,
    retired_seen: Cell<u64>,
}

/// Whether a path was found without asking the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    Hit,
    Miss,
}

impl View {
    pub(crate) fn new(files: Arc<Files>) -> Self {
        Self {
            files,
            own: RefCell::default(),
            retired_seen: Cell::new(0),
        }
    }

    /// The entry of `path`, which starts with a slash and has no dot component.
    pub(crate) fn find(&self, path: &[u8], now_ms: u64) -> (Lookup, Result<Found, Missing>) {
        if let Some(entry) = self.own.borrow().get(path)
            && entry.usage().is_current(now_ms)
            && entry.has_its_bytes()
        {
            entry.usage().mark_used(now_ms);
            return (Lookup::Hit, Ok(Rc::clone(entry)));
        }
        (Lookup::Miss, self.find_shared(path, now_ms))
    }

    /// Lets go of entries that were retired since the last call.
    pub(crate) fn drop_retired(&self) {
        let retired = self.files.cache.retired();
        if self.retired_seen.replace(retired) != retired {
            self.own
                .borrow_mut()
                .retain(|_, entry| !entry.usage().is_retired());
        }
    }

    fn find_shared(&self, path: &[u8], now_ms: u64) -> Result<Found, Missing> {
        let mut own = self.own.borrow_mut();
        match self.files.find(path, now_ms) {
            Ok((entry, kept)) => {
                entry.usage().mark_used(now_ms);
                if let Some(known) = own.get(path)
                    && Arc::ptr_eq(known, &entry)
                {
                    return Ok(Rc::clone(known));
                }
                let found = Rc::new(entry);
                if kept {
                    own.insert(path.into(), Rc::clone(&found));
                } else {
                    own.remove(path);
                }
                Ok(found)
            }
            Err(missing) => {
                own.remove(path);
                Err(missing)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Body, root::Root};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::time::Duration;
    use tunedweb_config::FileCacheConfig;

    fn view(folder: &Path, uses_min: u32) -> View {
        let config = FileCacheConfig {
            entries_max: 10,
            idle_timeout: Duration::from_mins(1),
            uses_min,
        };
        let root = Root::open(folder).unwrap();
        View::new(Arc::new(
            Files::new(root, vec!["index.html".to_owned()], &config, 10).unwrap(),
        ))
    }

    fn content(found: Result<Found, Missing>) -> Result<String, Missing> {
        found.map(|entry| match &entry.body {
            Body::Memory(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Body::File(_) => "a large file".to_owned(),
        })
    }

    #[test]
    fn the_second_request_does_not_ask_the_file_system() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "1").unwrap();
        let view = view(folder.path(), 1);
        assert_eq!(view.find(b"/a", 1_000).0, Lookup::Miss);
        fs::remove_file(folder.path().join("a")).unwrap();
        let (lookup, found) = view.find(b"/a", 1_000);
        assert_eq!((lookup, content(found)), (Lookup::Hit, Ok("1".to_owned())));
        assert_eq!(content(view.find(b"/a", 1_750).1), Err(Missing::NotFound));
    }

    #[test]
    fn with_two_uses_required_the_third_request_is_the_first_hit() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "1").unwrap();
        let view = view(folder.path(), 2);
        let lookups = [(); 3].map(|()| view.find(b"/a", 1_000).0);
        assert_eq!(lookups, [Lookup::Miss, Lookup::Miss, Lookup::Hit]);
    }

    #[test]
    fn a_switched_link_is_seen_at_the_next_check() {
        let folder = tempfile::tempdir().unwrap();
        for version in ["1", "2"] {
            fs::create_dir(folder.path().join(format!("..v{version}"))).unwrap();
            fs::write(folder.path().join(format!("..v{version}/a")), version).unwrap();
        }
        symlink("..v1", folder.path().join("..data")).unwrap();
        symlink("..data/a", folder.path().join("a")).unwrap();
        let view = view(folder.path(), 1);
        assert_eq!(content(view.find(b"/a", 1_000).1), Ok("1".to_owned()));
        symlink("..v2", folder.path().join("..tmp")).unwrap();
        fs::rename(folder.path().join("..tmp"), folder.path().join("..data")).unwrap();
        assert_eq!(content(view.find(b"/a", 1_749).1), Ok("1".to_owned()));
        assert_eq!(content(view.find(b"/a", 1_750).1), Ok("2".to_owned()));
    }

    #[test]
    fn another_workers_find_is_shared_and_its_removal_too() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "1").unwrap();
        let first = view(folder.path(), 1);
        let second = View::new(Arc::clone(&first.files));
        let (_, one) = first.find(b"/a", 1_000);
        let (_, two) = second.find(b"/a", 1_000);
        assert!(Arc::ptr_eq(&one.unwrap(), &two.unwrap()));
        fs::write(folder.path().join("a"), "22").unwrap();
        assert_eq!(content(first.find(b"/a", 1_750).1), Ok("22".to_owned()));
        assert_eq!(content(second.find(b"/a", 1_750).1), Ok("22".to_owned()));
    }

    #[test]
    fn a_large_file_changed_in_place_is_seen_at_once() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), vec![b'x'; 70_000]).unwrap();
        let view = view(folder.path(), 1);
        let (_, before) = view.find(b"/a", 1_000);
        fs::write(folder.path().join("a"), vec![b'y'; 80_000]).unwrap();
        let (lookup, after) = view.find(b"/a", 1_000);
        assert_eq!(lookup, Lookup::Miss);
        assert!(!Arc::ptr_eq(&before.unwrap(), &after.unwrap()));
    }

    #[test]
    fn retired_entries_are_let_go() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "1").unwrap();
        let view = view(folder.path(), 1);
        assert!(view.find(b"/a", 1_000).1.is_ok());
        view.files.drop_idle(100_000);
        view.drop_retired();
        assert!(view.own.borrow().is_empty());
    }

    #[test]
    fn a_huge_file_gets_its_etag_from_the_hashing_thread() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, vec![b'x'; 1_100_000]).unwrap();
        let view = view(folder.path(), 1);
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        let mut now_ms = 0;
        while view.find(b"/a", now_ms).1.unwrap().etag.is_none() {
            assert!(std::time::Instant::now() < deadline, "no ETag within 20 s");
            now_ms += 750;
            std::thread::yield_now();
        }
    }
}
