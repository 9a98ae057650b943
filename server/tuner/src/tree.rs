//! The kernel's keys as files, and what a node says of itself.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tunedweb_tuning::catalogue::Key;

/// Longest text read from a key: the kernel prints at most a page for all keys but bitmaps, and a
/// bitmap of every second port is 200 KiB.
const KEY_BYTES_MAX: usize = 256 * 1024;

/// Everything that is read from or written to the kernel goes through here, so that a test can make
/// any step fail.
pub trait KernelTree {
    /// The text of a key, without the final newline.
    fn read(&self, key: &Key) -> io::Result<String>;

    /// Whether a key can be opened for writing; nothing is written.
    fn check_writable(&self, key: &Key) -> io::Result<()>;

    /// Writes the text of a key in one call.
    fn write(&self, key: &Key, value: &str) -> io::Result<()>;

    /// What the node says of itself.
    fn host(&self) -> io::Result<Host>;
}

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Changes with each boot.
    pub boot_id: String,
    /// Inode number of the network namespace of this process.
    pub network_namespace: u64,
    /// `MemTotal`.
    pub memory_bytes: u64,
    /// Size of a page.
    pub page_size_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// Hard limit of open files of this process; none: without limit.
    pub hard_nofile: Option<u64>,
}

/// The tree below a root folder: `/` is the kernel's own.
///
/// Keys are files below `proc/sys` of the root, and of nowhere else. What the node says of itself is
/// read below the root where it is there (a test's tree), else below `/`: an agent may see the
/// host's keys under another folder, while its own `/proc` tells boot, memory and namespace well.
#[derive(Clone, Debug)]
pub struct ProcTree {
    root: PathBuf,
}

impl ProcTree {
    /// The tree below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn key_path(&self, key: &Key) -> PathBuf {
        self.root.join("proc/sys").join(key.path())
    }

    fn fact_path(&self, path: &str) -> PathBuf {
        let below_root = self.root.join(path);
        if below_root.exists() {
            below_root
        } else {
            Path::new("/").join(path)
        }
    }
}

impl KernelTree for ProcTree {
    fn read(&self, key: &Key) -> io::Result<String> {
        read_at_once(File::open(self.key_path(key))?)
    }

    fn check_writable(&self, key: &Key) -> io::Result<()> {
        OpenOptions::new()
            .write(true)
            .open(self.key_path(key))
            .map(drop)
    }

    /// The newline is what clears a bitmap: the kernel takes an empty write for none.
    fn write(&self, key: &Key, value: &str) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(self.key_path(key))?;
        file.write_all(format!("{value}\n").as_bytes())
    }

    fn host(&self) -> io::Result<Host> {
        let boot_id = fs::read_to_string(self.fact_path("proc/sys/kernel/random/boot_id"))?;
        let network_namespace = fs::metadata(self.fact_path("proc/self/ns/net"))?.ino();
        let meminfo = fs::read_to_string(self.fact_path("proc/meminfo"))?;
        let page_size_bytes = u64::try_from(rustix::param::page_size()).unwrap_or(u64::MAX);
        let kernel = rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        Ok(Host {
            boot_id: boot_id.trim().to_owned(),
            network_namespace,
            memory_bytes: memory_bytes(&meminfo)?,
            page_size_bytes,
            kernel,
            hard_nofile: limit.maximum,
        })
    }
}

/// The text of a key. The kernel gives what fits in the first read, and to further reads nothing: a
/// buffer that grows while it is read would lose the rest of the text.
fn read_at_once(mut key: impl io::Read) -> io::Result<String> {
    let mut text = vec![0; KEY_BYTES_MAX];
    let length = key.read(&mut text)?;
    text.truncate(length);
    let text = String::from_utf8(text)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(text.trim_end_matches('\n').to_owned())
}

/// `MemTotal:       24690612 kB` (proc_meminfo(5)).
fn memory_bytes(meminfo: &str) -> io::Result<u64> {
    meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|kib| kib.trim().parse::<u64>().ok())
        .map(|kib| kib.saturating_mul(1024))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no MemTotal in meminfo"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tunedweb_tuning::catalogue::find;

    fn somaxconn() -> &'static Key {
        find("net.core.somaxconn").expect("a known key")
    }

    #[test]
    fn a_key_below_another_root_is_written_there_and_only_there() {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(root.path().join("proc/sys/net/core")).expect("folders");
        fs::write(root.path().join("proc/sys/net/core/somaxconn"), "4096\n").expect("a file");
        let tree = ProcTree::new(root.path());
        assert_eq!(tree.read(somaxconn()).expect("a key"), "4096");
        tree.check_writable(somaxconn()).expect("a plain file");
        assert_eq!(
            tree.read(somaxconn()).expect("a key"),
            "4096",
            "the check wrote"
        );
        tree.write(somaxconn(), "128").expect("a plain file");
        assert_eq!(tree.read(somaxconn()).expect("a key"), "128");
    }

    #[test]
    fn a_key_that_the_root_lacks_is_not_taken_from_the_machine() {
        let root = tempfile::tempdir().expect("a folder");
        let error = ProcTree::new(root.path())
            .read(somaxconn())
            .expect_err("an empty tree");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    /// As `proc_do_large_bitmap` of the kernel.
    struct Bitmap<'a>(Option<&'a [u8]>);

    impl io::Read for Bitmap<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.take().map_or(Ok(0), |mut text| text.read(buffer))
        }
    }

    #[test]
    fn a_set_of_many_ports_is_read_whole() {
        let ports: Vec<String> = (1..=65_535)
            .step_by(2)
            .map(|port| port.to_string())
            .collect();
        let ports = ports.join(",");
        let text = format!("{ports}\n");
        let read = read_at_once(Bitmap(Some(text.as_bytes()))).expect("a text");
        assert!(read == ports, "{} of {} bytes", read.len(), ports.len());
    }

    #[test]
    fn the_memory_is_read_in_bytes() {
        let text = "MemFree: 1 kB\nMemTotal:       24690612 kB\n";
        assert_eq!(memory_bytes(text).expect("a line"), 24_690_612 * 1024);
        assert!(memory_bytes("MemFree: 1 kB\n").is_err());
    }

    #[test]
    fn this_machine_says_what_it_is() {
        let host = ProcTree::new("/").host().expect("procfs is mounted");
        assert_eq!(host.boot_id.len(), 36, "{}", host.boot_id);
        assert!(host.network_namespace > 0 && host.memory_bytes > 0 && host.page_size_bytes > 0);
    }
}
