//! What the catalogue says of one key, and the operations that follow from it.

use crate::value::{PortSet, Value, parse_number};

/// One kernel key that may be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Name with dots, as `sysctl(8)` prints it.
    pub name: &'static str,
    /// Type, number of values and the range that is accepted here.
    pub shape: Shape,
    /// Unit of the value as the user writes it.
    pub unit: Unit,
    /// Whom the value concerns.
    pub scope: Scope,
    /// Minor version of Kubernetes 1.x in which the key came onto the safe list.
    pub safe_since: Option<u32>,
    /// How the wishes of several owners become one value.
    pub merge: MergeRule,
    /// What happens to the value when the last owner goes.
    pub release: ReleaseRule,
    /// Whom a new value reaches.
    pub effect: EffectTime,
    /// Why the accepted range is what it is.
    pub range_reason: &'static str,
    /// Values within the range that are refused all the same.
    pub refused_values: &'static [ValueRule],
    /// What a good value is, in a line.
    pub advice: &'static str,
    /// Where these facts come from.
    pub source: &'static str,
}

/// Type and number of the values of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Numbers, each within the range; a vector must not fall.
    Numbers {
        /// How many.
        arity: usize,
        /// Smallest value accepted.
        min: u64,
        /// Largest value accepted.
        max: u64,
    },
    /// Ports and port ranges separated by commas.
    Ports,
    /// One name of lower-case letters, digits and underscores.
    Word {
        /// Most characters.
        length_max: usize,
    },
}

/// Unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Entries of a queue or table, or other things that are counted.
    Count,
    /// A choice that is written as a number.
    Choice,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Bytes for the user, pages for the kernel: converted with the node's page size.
    BytesKeptInPages,
    /// Port numbers.
    Port,
    /// A name.
    Name,
}

/// Whom a value concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One network namespace; a new one starts at the compiled default.
    PodNetwork,
    /// One network namespace; a new one copies the value from the host's.
    PodNetworkInherited,
    /// The whole node, and writable from a pod.
    Node,
    /// The whole node, and writable (or there at all) only in the host's network namespace.
    HostNetwork,
}

/// How wishes become one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeRule {
    /// The largest; a value found that is larger is kept.
    Max,
    /// The smallest; a value found that is smaller is kept.
    Min,
    /// All of them together; what is found beside them is kept.
    Union,
    /// The largest of each place of a vector; larger ones found are kept.
    ElementwiseMax,
    /// All must be equal, else the later one is a conflict.
    EqualOrConflict,
}

/// What happens to the value when the last owner goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseRule {
    /// The value from before the first write is put back.
    Restore,
    /// The raised value stays: lowering it would harm processes that started since.
    KeepRaised,
}

/// Whom a new value reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectTime {
    /// Sockets (or processes) made from then on.
    NewSocket,
    /// A listening socket at its next `listen(2)`.
    NextListen,
    /// Everything at once.
    Live,
}

/// A value that is in range and refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueRule {
    /// The value.
    pub value: u64,
    /// Why it is harmful.
    pub reason: &'static str,
    /// What to use.
    pub instead: &'static str,
}

impl Key {
    /// Path below `/proc/sys`.
    pub fn path(&self) -> String {
        self.name.replace('.', "/")
    }

    /// True where the value belongs to a network namespace's own tree (`net.*`).
    pub fn is_network(&self) -> bool {
        self.name.starts_with("net.")
    }

    /// What is accepted, for people.
    pub fn permitted(&self) -> String {
        match self.shape {
            Shape::Numbers { arity: 1, min, max } => format!("{min} to {max}{}", self.unit_word()),
            Shape::Numbers { arity, min, max } => format!(
                "{arity} numbers that do not fall, each {min} to {max}{}",
                self.unit_word()
            ),
            Shape::Ports => "ports and rising port ranges, such as 8080,30000-32767".to_owned(),
            Shape::Word { length_max } => {
                format!("a name of a-z, 0-9 and _, at most {length_max} characters")
            }
        }
    }

    /// The value as the kernel stores it.
    pub fn to_kernel(&self, value: &Value, page_size_bytes: u64) -> String {
        match value {
            Value::Numbers(bytes) if self.unit == Unit::BytesKeptInPages => {
                let pages = bytes
                    .iter()
                    .map(|bytes| bytes.div_ceil(page_size_bytes.max(1)));
                Value::Numbers(pages.collect()).to_string()
            }
            _ => value.to_string(),
        }
    }

    /// Reads what the kernel printed; `None` where it is not of this key's shape (another may have
    /// written a negative number).
    pub fn from_kernel(&self, text: &str, page_size_bytes: u64) -> Option<Value> {
        let text = text.trim();
        match self.shape {
            Shape::Numbers { arity, .. } => {
                let factor = match self.unit {
                    Unit::BytesKeptInPages => page_size_bytes,
                    _ => 1,
                };
                let numbers: Option<Vec<u64>> = text
                    .split_ascii_whitespace()
                    .map(|part| parse_number(part).map(|number| number.saturating_mul(factor)))
                    .collect();
                numbers
                    .filter(|numbers| numbers.len() == arity)
                    .map(Value::Numbers)
            }
            Shape::Ports => PortSet::parse(text).map(Value::Ports),
            Shape::Word { .. } => Some(Value::Word(text.to_owned())),
        }
    }

    /// Two wishes, or a wish and what is there without it, as one value. Values of another shape
    /// do not meet here: both come from this key's own parsers. What is there may fall from place to
    /// place (the kernel takes it from others); what comes of it here does not.
    #[must_use]
    pub fn combine(&self, a: &Value, b: &Value) -> Value {
        match (self.merge, a, b) {
            (MergeRule::Max | MergeRule::ElementwiseMax, Value::Numbers(a), Value::Numbers(b)) => {
                let largest = a.iter().zip(b).scan(0, |so_far, (a, b)| {
                    *so_far = *a.max(b).max(so_far);
                    Some(*so_far)
                });
                Value::Numbers(largest.collect())
            }
            (MergeRule::Min, Value::Numbers(a), Value::Numbers(b)) => {
                Value::Numbers(a.iter().zip(b).map(|(a, b)| *a.min(b)).collect())
            }
            (MergeRule::Union, Value::Ports(a), Value::Ports(b)) => Value::Ports(a.union(b)),
            _ => b.clone(),
        }
    }

    fn unit_word(&self) -> &'static str {
        match self.unit {
            Unit::Seconds => " seconds",
            Unit::Bytes | Unit::BytesKeptInPages => " bytes",
            Unit::Count | Unit::Choice | Unit::Port | Unit::Name => "",
        }
    }
}
