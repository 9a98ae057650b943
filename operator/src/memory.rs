//! What is remembered between visits. All of it can be found out again: a restart loses nothing but
//! the time to do so.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tunedweb_config::TuningReport;

use crate::content::Content;
use crate::drain::Mark;

/// Everything that is remembered.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    contents: Mutex<HashMap<(String, String), Content>>,
    pods: Mutex<HashMap<String, PodMemory>>,
    ended: Mutex<HashSet<String>>,
    admitted: Mutex<HashMap<String, Admission>>,
    mark: Mutex<Option<MarkMemory>>,
    claims: Mutex<HashMap<String, String>>,
}

/// What a serving pod answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodMemory {
    /// Its tuning report, and when it was read.
    pub(crate) tuning: Option<(TuningReport, Timestamp)>,
    /// Hash of the content that it was seen to serve.
    pub(crate) content: Option<String>,
}

/// Whether a namespace admitted a pod, and what that was found for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    /// Pod template and labels of the namespace.
    pub(crate) question: String,
    /// Why it refuses; none: it admits.
    pub(crate) refusal: Option<String>,
}

/// A drain mark that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MarkMemory {
    /// `metadata.resourceVersion` that it was read at.
    pub(crate) version: String,
    /// UID of the operator's Deployment at that time.
    pub(crate) deployment_uid: Option<String>,
    /// None: it is another installation's.
    pub(crate) obeyed: Option<Mark>,
}

impl Memory {
    /// The content of a `ConfigMap`, if it was read at this version.
    pub(crate) fn content(&self, namespace: &str, name: &str, version: &str) -> Option<Content> {
        let contents = lock(&self.contents);
        let found = contents.get(&(namespace.to_owned(), name.to_owned()))?;
        (found.version == version).then(|| found.clone())
    }

    pub(crate) fn remember_content(&self, namespace: &str, name: &str, content: Content) {
        lock(&self.contents).insert((namespace.to_owned(), name.to_owned()), content);
    }

    /// Forgets contents that nobody serves any more.
    pub(crate) fn retain_contents(&self, is_served: impl Fn(&str, &str) -> bool) {
        lock(&self.contents).retain(|(namespace, name), _| is_served(namespace, name));
    }

    pub(crate) fn pod(&self, uid: &str) -> PodMemory {
        lock(&self.pods).get(uid).cloned().unwrap_or_default()
    }

    pub(crate) fn remember_pod(&self, uid: &str, change: impl FnOnce(&mut PodMemory)) {
        change(lock(&self.pods).entry(uid.to_owned()).or_default());
    }

    /// Forgets pods that are gone.
    pub(crate) fn retain_pods(&self, is_there: impl Fn(&str) -> bool) {
        lock(&self.pods).retain(|uid, _| is_there(uid));
    }

    /// From now on the owner's pods are known to have ended, so that nothing applies again what is
    /// put back.
    pub(crate) fn set_ended(&self, owner_uid: &str) {
        lock(&self.ended).insert(owner_uid.to_owned());
    }

    pub(crate) fn has_ended(&self, owner_uid: &str) -> bool {
        lock(&self.ended).contains(owner_uid)
    }

    pub(crate) fn forget_owner(&self, owner_uid: &str) {
        lock(&self.ended).remove(owner_uid);
        lock(&self.admitted).remove(owner_uid);
    }

    pub(crate) fn admission(&self, owner_uid: &str, question: &str) -> Option<Admission> {
        let found = lock(&self.admitted).get(owner_uid).cloned()?;
        (found.question == question).then_some(found)
    }

    pub(crate) fn remember_admission(&self, owner_uid: &str, admission: Admission) {
        lock(&self.admitted).insert(owner_uid.to_owned(), admission);
    }

    /// Whether this run has the target from now on: nobody has it, or whoever had it is over.
    pub(crate) fn claim(
        &self,
        target: &str,
        run: &str,
        is_active: impl FnOnce(&str) -> bool,
    ) -> bool {
        let mut claims = lock(&self.claims);
        if claims
            .get(target)
            .is_some_and(|holder| holder != run && is_active(holder))
        {
            return false;
        }
        claims.insert(target.to_owned(), run.to_owned());
        true
    }

    /// The drain mark, if it was read at this version.
    pub(crate) fn mark(&self, version: &str) -> Option<MarkMemory> {
        lock(&self.mark)
            .clone()
            .filter(|known| known.version == version)
    }

    /// The drain mark that was read last.
    pub(crate) fn last_mark(&self) -> Option<MarkMemory> {
        lock(&self.mark).clone()
    }

    pub(crate) fn forget_mark(&self) {
        *lock(&self.mark) = None;
    }

    pub(crate) fn remember_mark(&self, known: MarkMemory) {
        *lock(&self.mark) = Some(known);
    }
}

/// The maps stay whole when a holder panics: each change is one call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_one_run_s_until_it_is_over() {
        let memory = Memory::default();
        assert!(memory.claim("web/site", "r1", |_| true));
        assert!(memory.claim("web/site", "r1", |_| true));
        assert!(!memory.claim("web/site", "r2", |holder| holder == "r1"));
        assert!(memory.claim("web/other", "r2", |_| true));
        assert!(memory.claim("web/site", "r2", |_| false));
    }
}
