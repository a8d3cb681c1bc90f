//! What an object is judged with, and what comes of it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use holdfast_api::{
    policy::Foreign,
    report::{Actor, CorrectionRecord, Outcome, Reason},
};
use holdfast_engine::{
    canonical::Digest,
    case::{Permit, Word},
    contest::Ledger,
    decide::Judgement,
    manager::{Operation, Writer},
    object::{Gvk, ObjectKey},
    path::{Path, Pattern},
    plan::Correction,
    redact,
    shown::ShownWrite,
    yields::Scaler,
};
use holdfast_fleet::{call::CallError, term::Term};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    admission::Admission,
    records::FenceQuestion,
    source::{Learnt, object_ref},
    state::ObjectState,
};
use crate::{metrics::OracleOutcome, policy::Ignore, reports::bounds};

/// What an object is judged with besides itself.
#[derive(Clone, Debug)]
pub struct Context {
    /// Whether drift may be written.
    pub permit: Permit,
    /// Whether the object may be deleted and created again where a field cannot be changed.
    pub recreate: bool,
    /// Ignore rules of the policy that fit the object.
    pub ignore: Vec<Ignore>,
    /// Paths of the object that the policy enforces.
    pub enforce: Vec<Pattern>,
    /// What is done about fields that somebody added.
    pub foreign: Foreign,
    /// Where everything that was added is drift.
    pub exclusive: Vec<Pattern>,
    /// Stands for the rules that bear on added fields.
    pub foreign_tag: u64,
    /// Earlier corrections.
    pub ledger: Option<Arc<Ledger>>,
    /// How the release writes, learnt from its other objects.
    pub writer: Option<Writer>,
    /// What the release record says about how it was applied.
    pub prefer: Option<Operation>,
    /// When the record switched to `deployed`.
    pub deployed_at: Option<Timestamp>,
    /// The autoscalers of the object.
    pub scalers: Vec<Scaler>,
    /// Who may rewrite objects of the cluster.
    pub admission: Arc<Admission>,
    /// How far the release's word goes for what it was never seen to own.
    pub word: Word,
    /// Another release that declares the object.
    pub also_declared_by: Option<String>,
    /// Why nothing can be created in the object's place for now.
    pub held: Option<Reason>,
    /// The release and the revision that is judged; without them nothing is written.
    pub fence: Option<FenceQuestion>,
    /// Leave to write; without it nothing is written.
    pub leave: Option<Leave>,
    /// What becomes of a write that was decided on.
    pub sends: Sends,
}

/// What becomes of a write that was decided on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sends {
    /// It is sent.
    #[default]
    Everything,
    /// It is told, as a [`Proposal`].
    Nothing,
    /// It is sent if it is the one that was proposed, else told.
    Only(Digest),
}

impl Sends {
    /// Whether this write is sent.
    pub fn lets(self, correction: &Correction) -> bool {
        match self {
            Self::Everything => true,
            Self::Nothing => false,
            Self::Only(proposed) => correction.identity() == proposed,
        }
    }
}

/// A write that was decided on and not sent.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// As people may see it.
    pub shown: ShownWrite,
    /// What it would do, whatever version of the object it meets.
    pub identity: Digest,
}

impl Proposal {
    /// The proposal of a correction of `live`.
    pub fn of(gvk: &Gvk, live: Option<&Value>, correction: &Correction) -> Self {
        Self { shown: ShownWrite::of(gvk, live, correction), identity: correction.identity() }
    }
}

/// Leave to write, as of one moment. Policies, gates, claims and releases can change while an object is being judged; a write that was
/// decided on by the old rules is then not sent. Nor is one after this hub's term.
#[derive(Clone, Debug)]
pub struct Leave {
    current: Arc<AtomicU64>,
    given: u64,
    term: Term,
}

impl Leave {
    /// Leave as things stand now. Whoever changes what a write depends on moves `current`.
    pub fn now(current: &Arc<AtomicU64>, term: &Term) -> Self {
        Self { current: Arc::clone(current), given: current.load(Ordering::Acquire), term: term.clone() }
    }

    /// Whether it still holds.
    pub fn holds(&self) -> bool {
        self.current.load(Ordering::Acquire) == self.given && self.term.holds()
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Examined {
    /// The judgement.
    pub judgement: Judgement,
    /// What is remembered of the object.
    pub state: ObjectState,
    /// How the release writes, as this object shows.
    pub writer: Option<Learnt>,
    /// How the release was thought to write.
    pub assumed: Option<Writer>,
    /// The write, if one was sent.
    pub write: Option<Written>,
    /// The failure that says that the cluster cannot be talked to.
    pub unreachable: Option<CallError>,
    /// UID of the live object; empty while it does not exist.
    pub uid: String,
    /// How the dry-runs ended that asked for the server's opinion.
    pub asked: Vec<OracleOutcome>,
    /// The leave to write ended before the write: judge again at once, by what holds now.
    pub stale_leave: bool,
    /// The second write of an earlier repair was made.
    pub has_paid: bool,
    /// The write that would have been sent, where the context says not to.
    pub proposal: Option<Box<Proposal>>,
}

/// A write that was sent.
#[derive(Debug)]
pub struct Written {
    /// Paths it was to restore, each with the digest of what was written and what had stood there; the root alone for a creation.
    pub paths: Vec<(Path, Digest)>,
    /// Whose change it undid.
    pub actor: Option<Actor>,
    /// How it ended.
    pub outcome: Outcome,
    /// The version between the two writes of a positional repair.
    pub passed: Option<u64>,
}

impl Written {
    /// The write as a report lists it.
    pub fn record(&self, key: &ObjectKey, uid: &str, time: Timestamp) -> CorrectionRecord {
        let paths = self.paths.iter().map(|(path, _)| redact::path_text(&key.gvk, path)).filter(|path| !path.is_empty()).collect();
        let mut record = CorrectionRecord {
            object: object_ref(key, uid),
            paths,
            paths_truncated: 0,
            actor: self.actor.clone(),
            outcome: self.outcome,
            time,
        };
        bounds::fit_correction(&mut record);
        record
    }
}
