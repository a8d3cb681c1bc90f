//! Everything known about one object at the moment of a decision, as plain values.

use std::fmt;

use holdfast_api::report::{Actor, DeviationReason, Reason};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    answer::{Answer, Fence, Live},
    canonical::Digest,
    contest::{Held, Ledger},
    foreign,
    manager::{self, Entry, Operation, Writer},
    normalise::Release,
    object::ObjectKey,
    owned::OwnedSet,
    path::Path,
    yields::Scaler,
};

/// One declared object after normalisation. `Debug` hides the value: it may be a Secret's.
#[derive(Clone, PartialEq)]
pub struct Desired {
    /// Which object.
    pub key: ObjectKey,
    /// As it is compared and written.
    pub value: Value,
    /// As the release creates it, where a server-side apply of that owns other fields: a Secret with `stringData`.
    pub written: Option<Value>,
    /// The release it belongs to; `None` for plain manifests.
    pub release: Option<Release>,
}

impl fmt::Debug for Desired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desired").field("key", &self.key).field("release", &self.release).finish_non_exhaustive()
    }
}

/// What counts as in sync for one (object uid, desired hash), beyond the declared values.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// Digest of the owned paths when the object was last in sync; `None` after a judgement that found drift.
    pub in_sync: Option<Digest>,
    /// Accepted differences.
    pub accepted: Box<[Accepted]>,
}

impl Baseline {
    /// What is accepted at `path` that covers `value`. Only what the server itself does is remembered; policies and
    /// autoscalers are asked anew each time. `traceless` tells that something stands there and nobody can be named for it: only then can
    /// it be one more of the values that the server never gives twice.
    pub fn accepts(&self, path: &Path, value: Digest, traceless: bool) -> Option<Accepted> {
        let id = path_id(path);
        let covers = |accepted: &&Accepted| {
            accepted.path == id
                && (accepted.value == value || (traceless && accepted.value == ANY))
                && matches!(accepted.reason, DeviationReason::Normalized | DeviationReason::Admission)
        };
        self.accepted.iter().find(covers).copied()
    }
}

/// Stands for every value that admission may give: one that is another each time, or that a dry-run does not tell.
pub(crate) const ANY: Digest = Digest::from_bytes([0; 16]);

/// One accepted difference, remembered without its text: 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Digest of the path.
    pub(crate) path: u64,
    /// Digest of what stands there.
    pub(crate) value: Digest,
    /// Why.
    pub reason: DeviationReason,
}

impl Accepted {
    /// Remembers that `value` is accepted at `path`.
    pub fn new(path: &Path, reason: DeviationReason, value: Digest) -> Self {
        Self { path: path_id(path), value, reason }
    }
}

fn path_id(path: &Path) -> u64 {
    let digest = Digest::of_bytes(path.to_string().as_bytes());
    digest.number()
}

/// Whether drift of this object may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// Report only. The reason tells why corrections are off where the policy's mode does not.
    Report(Option<Reason>),
    /// Correct.
    Write,
}

/// What a release may bring about on its word alone, where nobody has seen it write the object. A record is a claim, not authority:
/// whoever wrote it should get no more by it than could be had without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Everything: the policy trusts the release.
    Trusted,
    /// What lies in the release's own namespace and grants no rights: the record is a Secret, which tenants can write.
    OwnNamespace,
    /// ConfigMaps of its own namespace: the record is one, which more people can write than Secrets or workloads.
    ConfigMaps,
}

/// One object, as known so far. Built anew for each decision; [`crate::decide::decide`] answers with the next step.
pub struct Case<'a> {
    /// The declared object.
    pub desired: &'a Desired,
    /// The paths it claims, once the server has told.
    pub owned: Option<&'a OwnedSet>,
    /// What counts as in sync; `None` at first sight.
    pub baseline: Option<&'a Baseline>,
    /// The live object.
    pub live: Live<'a>,
    /// Forced server-side-apply dry-run of the declared object.
    pub oracle: Answer<'a>,
    /// The same question once more: where the answers differ, admission gives another value each time.
    pub oracle_again: Answer<'a>,
    /// Dry-run create of the declared object under a throw-away name.
    pub create: Answer<'a>,
    /// Server-side-apply dry-run of the declared object under a throw-away name; its answer told [`Case::owned`].
    pub claims: Answer<'a>,
    /// Dry-run merge of the declared object into the live one: the server's word on a manifest that it will not apply.
    pub merged: Answer<'a>,
    /// Dry-run of the very request that would be sent.
    pub proof: Answer<'a>,
    /// The same once more.
    pub proof_again: Answer<'a>,
    /// Whether the release is still the judged one.
    pub fence: Fence,
    /// Whether drift may be written.
    pub permit: Permit,
    /// Whether a policy ignores a path, given who last wrote it.
    pub ignored: &'a dyn Fn(&Path, Option<&Actor>) -> bool,
    /// Whether a policy enforces a path: it belongs to no autoscaler, and a fight over it only slows the corrections down. An ignore rule
    /// stands all the same, so that there is a way to break the glass.
    pub enforced: &'a dyn Fn(&Path) -> bool,
    /// The autoscalers of this object.
    pub scalers: &'a [Scaler],
    /// Names the webhooks and policies that may rewrite this object, for people. Asked only where nobody can be blamed.
    pub suspects: &'a dyn Fn() -> Vec<String>,
    /// Earlier corrections of this object.
    pub ledger: Option<&'a Ledger>,
    /// How the release writes, learnt from its other objects.
    pub writer: Option<&'a Writer>,
    /// What the release record says about how it was applied.
    pub prefer: Option<Operation>,
    /// When the release record switched to `deployed`, by the API server's clock.
    pub deployed_at: Option<Timestamp>,
    /// The object was seen alive with this release's ownership metadata before.
    pub seen: bool,
    /// The object was once as declared by this very revision of it: the release has really written it.
    pub vouched: bool,
    /// How far the release's word goes.
    pub word: Word,
    /// Another source that declares the same object.
    pub also_declared_by: Option<&'a str>,
    /// Why nothing of its kind, or in its namespace, can be created for now.
    pub held: Option<Reason>,
    /// What is done about fields that somebody added.
    pub foreign: foreign::Rules<'a>,
    /// The time of the decision.
    pub now: Timestamp,
}

impl Case<'_> {
    /// Whether `path` is held because somebody keeps undoing its corrections.
    pub fn held_at(&self, path: &Path) -> Option<Held> {
        self.ledger?.held(path, (self.enforced)(path), self.now)
    }

    /// Whether the live object is this release's: it carries the ownership metadata, or carried it when last seen and nobody let another
    /// release adopt it since.
    pub fn is_ours(&self, live: &Value) -> bool {
        self.desired.release.as_ref().is_none_or(|release| release.owns(live) || (self.seen && !release.is_owned_by_another(live)))
    }

    /// Whether the release's word alone suffices for this object. What goes beyond it needs a sign that the release itself wrote it.
    pub fn takes_the_records_word(&self) -> bool {
        let key = &self.desired.key;
        let own_namespace = self.desired.release.as_ref().map(|release| release.namespace.as_str());
        let is_harmless =
            key.gvk.group != "rbac.authorization.k8s.io" && key.namespace.is_some() && key.namespace.as_deref() == own_namespace;
        match self.word {
            Word::Trusted => true,
            Word::OwnNamespace => is_harmless,
            Word::ConfigMaps => is_harmless && key.gvk.is("", "ConfigMap"),
        }
    }

    /// Under which manager the release writes this object. Somebody else's entry counts as the release's own only where
    /// it is older than the deployment: whoever deleted the object and created it again holds its ownership metadata too. Times are to the
    /// second; of one second the name is believed under which the release wrote its other objects.
    pub fn release_writer(&self, entries: &[Entry]) -> Option<Writer> {
        release_writer(entries, self.prefer, self.writer, self.deployed_at)
    }
}

/// See [`Case::release_writer`].
pub fn release_writer(
    entries: &[Entry],
    prefer: Option<Operation>,
    known: Option<&Writer>,
    deployed_at: Option<Timestamp>,
) -> Option<Writer> {
    let own = manager::release_entry(entries, prefer, known);
    match (own, known) {
        (Some(entry), Some(known)) if !known.wrote(entry) && is_since(entry.time, deployed_at) => Some(known.clone()),
        (Some(entry), _) => Some(entry.writer()),
        (None, known) => known.cloned(),
    }
}

fn is_since(time: Option<Timestamp>, limit: Option<Timestamp>) -> bool {
    matches!((time, limit), (Some(time), Some(limit)) if time >= limit)
}
