//! What all workers share of the files: a bounded table from path to entry.
//!
//! Workers keep the entries they use in tables of their own, so this one is locked when a path is
//! new to a worker, when an entry is checked against the file system, and when one goes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::entry::Usage;

/// Bounds of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) entries_max: usize,
    /// Bytes of contents in memory.
    pub(crate) bytes_max: usize,
    /// Files kept open.
    pub(crate) files_max: usize,
    /// Uses, each within `idle_ms` of the one before, from which on an entry is kept.
    pub(crate) uses_min: u32,
    pub(crate) idle_ms: u64,
}

/// The table. `V` is [`super::entry::Entry`] outside of tests.
#[derive(Debug)]
pub(crate) struct Cache<V> {
    limits: Limits,
    table: RwLock<Table<V>>,
    evicted: AtomicU64,
    retired: AtomicU64,
}

#[derive(Debug)]
struct Table<V> {
    slots: HashMap<Box<[u8]>, Slot<V>>,
    bytes: usize,
    files: usize,
}

#[derive(Debug)]
enum Slot<V> {
    /// Asked for, but not often enough yet.
    Seen { uses: u32, used_ms: u64 },
    Kept {
        value: Arc<V>,
        weight: (usize, usize),
    },
}

impl<V: AsRef<Usage>> Cache<V> {
    pub(crate) fn new(limits: Limits) -> Self {
        let table = Table {
            slots: HashMap::new(),
            bytes: 0,
            files: 0,
        };
        Self {
            limits,
            table: RwLock::new(table),
            evicted: AtomicU64::new(0),
            retired: AtomicU64::new(0),
        }
    }

    pub(crate) fn get(&self, path: &[u8]) -> Option<Arc<V>> {
        match self.read().slots.get(path) {
            Some(Slot::Kept { value, .. }) => Some(Arc::clone(value)),
            _ => None,
        }
    }

    /// Counts a use of a path that is not kept; true: it is to be kept from now on.
    pub(crate) fn note_use(&self, path: &[u8], now_ms: u64) -> bool {
        if self.limits.entries_max == 0 {
            return false;
        }
        if self.limits.uses_min <= 1 {
            return true;
        }
        let mut table = self.write();
        if let Some(Slot::Seen { uses, used_ms }) = table.slots.get_mut(path) {
            let in_time = now_ms.saturating_sub(*used_ms) <= self.limits.idle_ms;
            *uses = if in_time { *uses + 1 } else { 1 };
            *used_ms = now_ms;
            return *uses >= self.limits.uses_min;
        }
        self.make_room(&mut table, (0, 0));
        table.slots.insert(
            path.into(),
            Slot::Seen {
                uses: 1,
                used_ms: now_ms,
            },
        );
        false
    }

    /// Keeps `value`, in place of what was there; false: it is larger than the whole table.
    pub(crate) fn insert(&self, path: &[u8], value: Arc<V>, weight: (usize, usize)) -> bool {
        let limits = &self.limits;
        if limits.entries_max == 0 || weight.0 > limits.bytes_max || weight.1 > limits.files_max {
            return false;
        }
        let mut table = self.write();
        self.take_out(&mut table, path);
        self.make_room(&mut table, weight);
        table.bytes += weight.0;
        table.files += weight.1;
        table
            .slots
            .insert(path.into(), Slot::Kept { value, weight });
        true
    }

    /// Keeps `value` only if `old` is still what is kept.
    pub(crate) fn replace(&self, path: &[u8], old: &Arc<V>, value: Arc<V>) {
        let mut table = self.write();
        if let Some(Slot::Kept { value: kept, .. }) = table.slots.get_mut(path)
            && Arc::ptr_eq(kept, old)
        {
            *kept = value;
            old.as_ref().as_ref().retire();
            self.retired.fetch_add(1, Ordering::Release);
        }
    }

    pub(crate) fn remove(&self, path: &[u8]) {
        let mut table = self.write();
        self.take_out(&mut table, path);
    }

    /// Drops what nobody asked for in time.
    pub(crate) fn drop_idle(&self, now_ms: u64) {
        let idle_ms = self.limits.idle_ms;
        let is_idle = |slot: &Slot<V>| now_ms.saturating_sub(slot.used_ms()) > idle_ms;
        self.drop_where(&mut self.write(), is_idle);
    }

    /// Closes the least recently used sixteenth of the files kept open.
    pub(crate) fn close_some(&self) {
        self.drop_oldest(&mut self.write(), |slot| slot.weight().1 > 0);
    }

    /// Entries dropped to make room or because nobody asked for them.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Changes whenever an entry is retired, so that workers know when to look for one.
    pub(crate) fn retired(&self) -> u64 {
        self.retired.load(Ordering::Acquire)
    }

    /// Entries, bytes in memory and open files.
    pub(crate) fn size(&self) -> (usize, usize, usize) {
        let table = self.read();
        (table.slots.len(), table.bytes, table.files)
    }

    fn make_room(&self, table: &mut Table<V>, weight: (usize, usize)) {
        let limits = &self.limits;
        while !table.slots.is_empty()
            && (table.slots.len() >= limits.entries_max
                || table.bytes + weight.0 > limits.bytes_max
                || table.files + weight.1 > limits.files_max)
        {
            self.drop_oldest(table, |_| true);
        }
    }

    /// Drops the oldest of those that `may_go`. A sixteenth at a time: finding the oldest takes a
    /// look at each entry, which so is paid for once in many insertions.
    fn drop_oldest(&self, table: &mut Table<V>, may_go: impl Fn(&Slot<V>) -> bool) {
        let candidates = table.slots.values().filter(|slot| may_go(slot));
        let mut uses: Vec<u64> = candidates.map(Slot::used_ms).collect();
        if uses.is_empty() {
            return;
        }
        let last = uses.len() / 16;
        let (_, threshold, _) = uses.select_nth_unstable(last);
        let threshold = *threshold;
        // of equally old ones only as many as are needed
        let mut left = last + 1;
        self.drop_where(table, |slot| {
            let goes = slot.used_ms() <= threshold && left > 0 && may_go(slot);
            left -= usize::from(goes);
            goes
        });
    }

    fn drop_where(&self, table: &mut Table<V>, mut goes: impl FnMut(&Slot<V>) -> bool) {
        let Table {
            slots,
            bytes,
            files,
        } = table;
        let mut dropped = 0;
        slots.retain(|_, slot| {
            if !goes(slot) {
                return true;
            }
            if let Slot::Kept { value, weight } = slot {
                value.as_ref().as_ref().retire();
                *bytes -= weight.0;
                *files -= weight.1;
                dropped += 1;
            }
            false
        });
        if dropped > 0 {
            self.evicted.fetch_add(dropped, Ordering::Relaxed);
            self.retired.fetch_add(1, Ordering::Release);
        }
    }

    fn take_out(&self, table: &mut Table<V>, path: &[u8]) {
        if let Some(Slot::Kept { value, weight }) = table.slots.remove(path) {
            table.bytes -= weight.0;
            table.files -= weight.1;
            value.as_ref().as_ref().retire();
            self.retired.fetch_add(1, Ordering::Release);
        }
    }

    /// A panic cannot leave the table half changed in a way that matters: at worst its sums are too
    /// high and entries go early.
    fn read(&self) -> RwLockReadGuard<'_, Table<V>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table<V>> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V: AsRef<Usage>> Slot<V> {
    fn used_ms(&self) -> u64 {
        match self {
            Self::Seen { used_ms, .. } => *used_ms,
            Self::Kept { value, .. } => value.as_ref().as_ref().used_ms(),
        }
    }

    fn weight(&self) -> (usize, usize) {
        match self {
            Self::Seen { .. } => (0, 0),
            Self::Kept { weight, .. } => *weight,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Value(Usage);

    impl AsRef<Usage> for Value {
        fn as_ref(&self) -> &Usage {
            &self.0
        }
    }

    const LIMITS: Limits = Limits {
        entries_max: 4,
        bytes_max: 100,
        files_max: 2,
        uses_min: 1,
        idle_ms: 1_000,
    };

    fn value(used_ms: u64) -> Arc<Value> {
        let value = Value(Usage::default());
        value.0.mark_used(used_ms);
        Arc::new(value)
    }

    fn kept(cache: &Cache<Value>) -> String {
        ["a", "b", "c", "d", "e"]
            .into_iter()
            .filter(|path| cache.get(path.as_bytes()).is_some())
            .collect()
    }

    #[test]
    fn the_least_recently_used_entry_makes_room() {
        let cache = Cache::new(LIMITS);
        for (path, used_ms) in [("a", 4), ("b", 2), ("c", 3), ("d", 5), ("e", 6)] {
            assert!(cache.insert(path.as_bytes(), value(used_ms), (1, 0)));
        }
        assert_eq!(kept(&cache), "acde");
        assert_eq!(cache.evicted(), 1);
    }

    #[test]
    fn bytes_and_open_files_are_bounded_too() {
        let cache = Cache::new(LIMITS);
        assert!(cache.insert(b"a", value(1), (60, 0)));
        assert!(cache.insert(b"b", value(2), (60, 0)));
        assert_eq!(kept(&cache), "b");
        assert!(!cache.insert(b"c", value(3), (101, 0)));
        for (path, used_ms) in [("c", 3), ("d", 4), ("e", 5)] {
            assert!(cache.insert(path.as_bytes(), value(used_ms), (0, 1)));
        }
        // b was the oldest and went first
        assert_eq!(kept(&cache), "de");
        assert_eq!(cache.size(), (2, 0, 2));
    }

    #[test]
    fn what_goes_is_retired() {
        let cache = Cache::new(LIMITS);
        let (a, b) = (value(1), value(2));
        cache.insert(b"a", Arc::clone(&a), (1, 0));
        let before = cache.retired();
        cache.insert(b"a", Arc::clone(&b), (1, 0));
        assert!(a.0.is_retired() && !b.0.is_retired());
        assert_ne!(cache.retired(), before);
        cache.remove(b"a");
        assert!(b.0.is_retired());
        assert_eq!(cache.size(), (0, 0, 0));
    }

    #[test]
    fn idle_entries_are_dropped() {
        let cache = Cache::new(LIMITS);
        cache.insert(b"a", value(1_000), (1, 0));
        cache.insert(b"b", value(2_000), (1, 0));
        cache.drop_idle(2_001);
        assert_eq!(kept(&cache), "b");
    }

    #[test]
    fn a_path_is_kept_from_its_nth_use_in_time() {
        let cache: Cache<Value> = Cache::new(Limits {
            uses_min: 2,
            ..LIMITS
        });
        assert!(!cache.note_use(b"a", 0));
        assert!(!cache.note_use(b"a", 1_001));
        assert!(cache.note_use(b"a", 1_500));
        for number in 0..100_u32 {
            assert!(!cache.note_use(&number.to_le_bytes(), 2_000));
        }
        assert!(cache.size().0 <= LIMITS.entries_max);
    }

    #[test]
    fn only_entries_with_a_file_go_to_have_open_files_again() {
        let cache = Cache::new(LIMITS);
        cache.insert(b"a", value(1), (1, 0));
        cache.insert(b"b", value(2), (0, 1));
        cache.insert(b"c", value(3), (0, 1));
        cache.close_some();
        assert_eq!(kept(&cache), "ac");
    }

    #[test]
    fn without_entries_nothing_is_kept() {
        let cache = Cache::new(Limits {
            entries_max: 0,
            ..LIMITS
        });
        assert!(!cache.note_use(b"a", 0));
        assert!(!cache.insert(b"a", value(0), (0, 0)));
    }

    #[test]
    fn a_value_computed_late_replaces_only_the_one_it_was_computed_from() {
        let cache = Cache::new(LIMITS);
        let (old, new) = (value(1), value(1));
        cache.insert(b"a", Arc::clone(&old), (1, 0));
        cache.replace(b"a", &new, value(9));
        assert!(Arc::ptr_eq(&cache.get(b"a").unwrap(), &old));
        cache.replace(b"a", &old, Arc::clone(&new));
        assert!(Arc::ptr_eq(&cache.get(b"a").unwrap(), &new));
        assert!(old.0.is_retired());
    }
}
