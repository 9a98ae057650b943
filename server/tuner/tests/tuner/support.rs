//! A kernel in memory, in which any call can be made to fail or to be the last one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::rc::Rc;

use tempfile::TempDir;
use tunedweb_tuner::{Applied, Host, KernelTree, OwnerWishes, Standing, Tuner};
use tunedweb_tuning::catalogue::Key;
use tunedweb_tuning::{
    CheckedPlan, KeyReport, KeyState, Owner, Plan, PlanContext, SysctlSetting, UlimitName,
    UlimitSetting,
};

/// errno values (asm-generic/errno-base.h).
pub(crate) const EPERM: i32 = 1;
pub(crate) const ENOENT: i32 = 2;
pub(crate) const EACCES: i32 = 13;
pub(crate) const EINVAL: i32 = 22;
pub(crate) const EROFS: i32 = 30;

pub(crate) const MAPS: &str = "vm.max_map_count";
pub(crate) const WATCHES: &str = "fs.inotify.max_user_watches";
pub(crate) const SOMAXCONN: &str = "net.core.somaxconn";
pub(crate) const RMEM: &str = "net.ipv4.tcp_rmem";
pub(crate) const CONGESTION: &str = "net.ipv4.tcp_congestion_control";
pub(crate) const NR_OPEN: &str = "fs.nr_open";

/// A node with a key of each kind at its usual value.
pub(crate) fn node() -> Node {
    Node::new(&[
        (MAPS, "65530"),
        (WATCHES, "8192"),
        (SOMAXCONN, "4096"),
        (RMEM, "4096\t131072\t33554432"),
        (CONGESTION, "cubic"),
        (NR_OPEN, "1048576"),
    ])
}

/// What a key of the fake kernel does when it is written.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Cannot be opened for writing.
    NotWritable(i32),
    /// Every write is answered by this error.
    WriteFails(i32),
    /// Every write stores this text instead.
    Stores(&'static str),
}

/// The panic that stands for SIGKILL: nothing after it runs, and nothing but the closing of files
/// happens on the way out.
pub(crate) struct Killed;

#[derive(Default)]
struct Inner {
    values: RefCell<BTreeMap<String, String>>,
    faults: RefCell<BTreeMap<String, Fault>>,
    writes: RefCell<Vec<(String, String)>>,
    calls: Cell<usize>,
    killed_at: Cell<Option<usize>>,
    boot: Cell<u32>,
    namespace: Cell<u64>,
    page_size_bytes: Cell<u64>,
}

/// A kernel in memory; its copies are the same kernel.
#[derive(Clone, Default)]
pub(crate) struct FakeKernel(Rc<Inner>);

impl FakeKernel {
    pub(crate) fn new(values: &[(&str, &str)]) -> Self {
        let kernel = Self::default();
        for (name, value) in values {
            kernel.set(name, value);
        }
        kernel.0.namespace.set(4_026_531_833);
        kernel.0.page_size_bytes.set(4_096);
        kernel
    }

    /// What another program writes.
    pub(crate) fn set(&self, name: &str, value: &str) {
        self.0
            .values
            .borrow_mut()
            .insert(name.to_owned(), value.to_owned());
    }

    pub(crate) fn value(&self, name: &str) -> String {
        self.0
            .values
            .borrow()
            .get(name)
            .cloned()
            .unwrap_or_default()
    }

    pub(crate) fn values(&self) -> BTreeMap<String, String> {
        self.0.values.borrow().clone()
    }

    pub(crate) fn remove(&self, name: &str) {
        self.0.values.borrow_mut().remove(name);
    }

    pub(crate) fn fault(&self, name: &str, fault: Fault) {
        self.0.faults.borrow_mut().insert(name.to_owned(), fault);
    }

    pub(crate) fn heal(&self) {
        self.0.faults.borrow_mut().clear();
        self.0.killed_at.set(None);
    }

    /// The writes since the last time this was asked.
    pub(crate) fn take_writes(&self) -> Vec<(String, String)> {
        self.0.writes.take()
    }

    pub(crate) fn set_page_size(&self, bytes: u64) {
        self.0.page_size_bytes.set(bytes);
    }

    /// Starts again: every key has its compiled value, the boot id is new.
    pub(crate) fn reboot(&self, values: &[(&str, &str)]) {
        self.0.boot.set(self.0.boot.get() + 1);
        self.0.values.borrow_mut().clear();
        for (name, value) in values {
            self.set(name, value);
        }
    }

    /// The node's container starts again: same boot, new network namespace.
    pub(crate) fn enter_namespace(&self, inode: u64) {
        self.0.namespace.set(inode);
    }

    /// Makes the call of this number the last one: an even number is killed before the call does
    /// anything, an odd one right after it.
    pub(crate) fn kill_at(&self, moment: usize) {
        self.0.calls.set(0);
        self.0.killed_at.set(Some(moment));
    }

    fn moment(&self) {
        let now = self.0.calls.get();
        self.0.calls.set(now + 1);
        if self.0.killed_at.get() == Some(now) {
            resume_unwind(Box::new(Killed));
        }
    }

    fn call<R>(&self, work: impl FnOnce() -> R) -> R {
        self.moment();
        let result = work();
        self.moment();
        result
    }

    fn error(&self, key: &Key, writing: bool) -> Option<io::Error> {
        if !self.0.values.borrow().contains_key(key.name) {
            return Some(io::Error::from_raw_os_error(ENOENT));
        }
        match self.0.faults.borrow().get(key.name) {
            Some(Fault::NotWritable(code)) => Some(io::Error::from_raw_os_error(*code)),
            Some(Fault::WriteFails(code)) if writing => Some(io::Error::from_raw_os_error(*code)),
            _ => None,
        }
    }
}

impl KernelTree for FakeKernel {
    fn read(&self, key: &Key) -> io::Result<String> {
        self.call(|| {
            let missing = || io::Error::from_raw_os_error(ENOENT);
            self.0
                .values
                .borrow()
                .get(key.name)
                .cloned()
                .ok_or_else(missing)
        })
    }

    fn check_writable(&self, key: &Key) -> io::Result<()> {
        self.call(|| self.error(key, false).map_or(Ok(()), Err))
    }

    fn write(&self, key: &Key, value: &str) -> io::Result<()> {
        self.call(|| {
            self.0
                .writes
                .borrow_mut()
                .push((key.name.to_owned(), value.to_owned()));
            if let Some(error) = self.error(key, true) {
                return Err(error);
            }
            let stores = match self.0.faults.borrow().get(key.name) {
                Some(Fault::Stores(text)) => (*text).to_owned(),
                // Vectors come back separated by tabs.
                _ => value.replace(' ', "\t"),
            };
            self.set(key.name, &stores);
            Ok(())
        })
    }

    fn host(&self) -> io::Result<Host> {
        Ok(Host {
            boot_id: format!("boot-{}", self.0.boot.get()),
            network_namespace: self.0.namespace.get(),
            memory_bytes: 1 << 30,
            page_size_bytes: self.0.page_size_bytes.get(),
            kernel: "6.18.0".to_owned(),
            hard_nofile: Some(20_000),
        })
    }
}

/// A fake kernel with a journal folder of its own.
pub(crate) struct Node {
    pub(crate) kernel: FakeKernel,
    pub(crate) folder: TempDir,
}

impl Node {
    pub(crate) fn new(values: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self {
            kernel: FakeKernel::new(values),
            folder,
        }
    }

    pub(crate) fn tuner(&self) -> Tuner<FakeKernel> {
        self.tuner_of("node-1")
    }

    pub(crate) fn tuner_of(&self, node: &str) -> Tuner<FakeKernel> {
        Tuner::new(self.kernel.clone(), self.folder.path(), node)
    }

    pub(crate) fn apply(&self, plan: &CheckedPlan) -> Applied {
        self.tuner().apply(plan).expect("the journal is usable")
    }

    pub(crate) fn release(&self, uid: &str, generation: i64) -> Vec<KeyReport> {
        self.tuner()
            .release(&owner(uid, generation), PlanContext::Host)
            .expect("the journal is usable")
    }

    pub(crate) fn journal_file(&self) -> PathBuf {
        self.folder.path().join("journal.json")
    }

    pub(crate) fn journal_text(&self) -> String {
        std::fs::read_to_string(self.journal_file()).unwrap_or_default()
    }

    /// Runs `work`, in which the kernel may kill. True where it came to its end.
    pub(crate) fn survives(&self, work: impl FnOnce(&Self)) -> bool {
        match catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(()) => true,
            Err(reason) if reason.is::<Killed>() => false,
            Err(reason) => resume_unwind(reason),
        }
    }
}

pub(crate) fn owner(uid: &str, generation: i64) -> Owner {
    Owner {
        uid: uid.to_owned(),
        resource: format!("web/{uid}"),
        generation,
    }
}

pub(crate) fn settings(sysctls: &[(&str, &str)]) -> Vec<SysctlSetting> {
    let setting = |(name, value): &(&str, &str)| SysctlSetting {
        name: (*name).to_owned(),
        value: (*value).to_owned(),
    };
    sysctls.iter().map(setting).collect()
}

pub(crate) fn plan(
    context: PlanContext,
    uid: &str,
    generation: i64,
    sysctls: &[(&str, &str)],
) -> CheckedPlan {
    plan_with_nofile(context, uid, generation, sysctls, None)
}

pub(crate) fn plan_with_nofile(
    context: PlanContext,
    uid: &str,
    generation: i64,
    sysctls: &[(&str, &str)],
    nofile: Option<u64>,
) -> CheckedPlan {
    let ulimit = |soft| UlimitSetting {
        name: UlimitName::Nofile,
        soft,
    };
    let plan = Plan {
        version: 1,
        owner: owner(uid, generation),
        context,
        sysctls: settings(sysctls),
        ulimits: nofile.map(ulimit).into_iter().collect(),
    };
    let text = plan.to_json().expect("plain data");
    Plan::parse(text.as_bytes()).expect("a permitted plan")
}

pub(crate) fn host_plan(uid: &str, generation: i64, sysctls: &[(&str, &str)]) -> CheckedPlan {
    plan(PlanContext::Host, uid, generation, sysctls)
}

pub(crate) fn pod_plan(uid: &str, generation: i64, sysctls: &[(&str, &str)]) -> CheckedPlan {
    plan(PlanContext::Pod, uid, generation, sysctls)
}

pub(crate) fn active(uid: &str, generation: i64, sysctls: &[(&str, &str)]) -> OwnerWishes {
    OwnerWishes {
        owner: owner(uid, generation),
        standing: Standing::Active,
        sysctls: settings(sysctls),
    }
}

pub(crate) fn pending(uid: &str, generation: i64) -> OwnerWishes {
    OwnerWishes {
        owner: owner(uid, generation),
        standing: Standing::Pending,
        sysctls: Vec::new(),
    }
}

pub(crate) fn released(uid: &str, generation: i64) -> OwnerWishes {
    OwnerWishes {
        owner: owner(uid, generation),
        standing: Standing::Released,
        sysctls: Vec::new(),
    }
}

/// States by key, in the order of the reports.
pub(crate) fn states(keys: &[KeyReport]) -> Vec<(&str, KeyState)> {
    keys.iter()
        .map(|key| (key.name.as_str(), key.state))
        .collect()
}
