//! From what a policy says to what it means. A [`Policy`] cannot hold nonsense; whatever cannot become one is a [`PolicyError`].

use std::{sync::Arc, time::Duration};

use holdfast_api::{
    duration::Span,
    policy::{Contest, DEFAULT_INTERVAL, DriftPolicySpec, Foreign, LabelSelector, Limit, Mode, OnFailedRelease, Recreate, ReleaseSelector},
};
use holdfast_engine::{blast::BlastRule, canonical::Digest, path::PathError};

use super::{
    Glob, Ignore, PathsOf, PolicyName,
    glob::GlobTooLong,
    selector::{Of, Selector, SelectorProblem},
};

use crate::fleet_view::ClusterEntry;

/// Shortest audit interval.
const MIN_INTERVAL: Duration = Duration::from_secs(30);

/// Why a policy is invalid. One sentence for people, one word for programs; it never repeats what the policy says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct PolicyError {
    /// The field, as a path such as `spec.ignore[2].paths[0]`.
    pub field: String,
    /// What is wrong with it.
    pub problem: Problem,
}

impl PolicyError {
    /// The reason of the condition `Accepted`.
    pub const REASON: &'static str = "Invalid";
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The spec does not have the shape of a policy.
    #[error("this hub cannot read the policy; it was probably written for another version")]
    Unreadable,
    /// The interval is too short.
    #[error("the shortest interval is 30s")]
    Interval,
    /// A contest window or number of rounds makes no sense.
    #[error("a contest has 2 to 20 rounds in a window from 1s to 24h")]
    Contest,
    /// A limit makes no sense.
    #[error("a limit has 1 to 6000 corrections a minute, a blast radius 1 to 100 percent and 1 object or more")]
    Limit,
    /// A rule without paths and managers would ignore whole objects by accident.
    #[error("give paths or managers; to ignore whole objects use paths: ['']")]
    EmptyIgnoreRule,
    /// The selector is wrong.
    #[error("{0}")]
    Selector(SelectorProblem),
    /// The glob is wrong.
    #[error("{0}")]
    Glob(GlobTooLong),
    /// The path is wrong.
    #[error("{0}")]
    Path(PathError),
}

pub(super) fn at(field: &str, problem: Problem) -> PolicyError {
    PolicyError { field: field.to_owned(), problem }
}

/// When a path counts as fought over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContestRule {
    /// Alternations of the same two values.
    pub rounds: u32,
    /// Time in which they must happen.
    pub window: Duration,
}

impl Default for ContestRule {
    /// What counts where a policy says nothing (design §2.1).
    fn default() -> Self {
        Self { rounds: 3, window: Duration::from_mins(30) }
    }
}

/// Brakes on corrections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitRule {
    /// Corrections a minute.
    pub per_minute: u32,
    /// How much drift at once is too much.
    pub blast: BlastRule,
}

impl Default for LimitRule {
    fn default() -> Self {
        Self { per_minute: 60, blast: BlastRule { percent: 30, min_objects: 20 } }
    }
}

/// What to do about drift of one release: what the winning policy says, ready for use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The policy it comes from; `None` for `--default-mode`.
    pub policy: Option<PolicyName>,
    /// `Warn` or `Correct`; a release under `Off` has no guard.
    pub mode: Mode,
    /// Time between audits, before jitter.
    pub interval: Duration,
    /// Accepted drift.
    pub ignore: Arc<[Ignore]>,
    /// What happens to fields that somebody added.
    pub foreign: Foreign,
    /// Containers of fields where anything added is drift.
    pub exclusive: Arc<[PathsOf]>,
    /// Stands for all of it that bears on fields that somebody added.
    pub foreign_tag: u64,
    /// Paths that are never yielded.
    pub enforce: Arc<[PathsOf]>,
    /// Whether an object may be deleted and created again.
    pub recreate: Recreate,
    /// Whether missing cluster-scoped objects, RBAC objects and objects of other namespaces may be created.
    pub trust: bool,
    /// What a newest record with status `failed` means.
    pub on_failed: OnFailedRelease,
    /// Keep detecting, stop correcting.
    pub suspend: bool,
    /// When a path counts as fought over.
    pub contest: ContestRule,
    /// Brakes on corrections.
    pub limit: LimitRule,
    /// Keyed hashes of what is declared that may be corrected towards however much drifted from it.
    pub approved: Arc<[String]>,
}

impl Guard {
    /// A guard that reports and accepts nothing: that of a release that no policy selects, on a hub with `--default-mode Warn`.
    pub fn default_warn() -> Self {
        Self {
            foreign_tag: foreign_tag(Foreign::Report, &[], &[]),
            policy: None,
            mode: Mode::Warn,
            interval: DEFAULT_INTERVAL.0,
            ignore: Arc::from([]),
            foreign: Foreign::Report,
            exclusive: Arc::from([]),
            enforce: Arc::from([]),
            recreate: Recreate::Never,
            trust: false,
            on_failed: OnFailedRelease::Report,
            suspend: false,
            contest: ContestRule::default(),
            limit: LimitRule::default(),
            approved: Arc::from([]),
        }
    }
}

/// A policy that makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub(super) name: PolicyName,
    pub(super) priority: i32,
    namespaces: Namespaces,
    clusters: Selector,
    releases: Box<[ReleaseMatcher]>,
    plain: Arc<Guard>,
    trusted: Arc<Guard>,
}

/// Which kind of policy goes before which, whatever their priorities: the nearer one to a cluster knows better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    DriftPolicy,
    ClusterDriftPolicy,
}

/// Namespaces of the management cluster whose clusters a policy is for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Namespaces {
    /// Its own.
    Own,
    /// Those with such labels.
    Labelled(Selector),
}

impl Namespaces {
    fn compile(name: &PolicyName, selector: Option<&LabelSelector>) -> Result<Self, PolicyError> {
        if !name.is_of_cluster() {
            return Ok(Self::Own);
        }
        let selector = selector.ok_or_else(|| at("spec", Problem::Unreadable))?;
        Selector::compile(selector, Of::Labels)
            .map(Self::Labelled)
            .map_err(|error| at(&format!("spec.namespaceSelector.{}", error.field), Problem::Selector(error.problem)))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ReleaseMatcher {
    name: Option<Glob>,
    namespace: Option<Glob>,
    trust: bool,
}

impl Policy {
    /// Compiles a policy as a whole: the first thing wrong with it is its error.
    pub fn compile(name: PolicyName, spec: &DriftPolicySpec, namespaces: Option<&LabelSelector>) -> Result<Self, PolicyError> {
        if spec.interval.0 < MIN_INTERVAL {
            return Err(at("spec.interval", Problem::Interval));
        }
        let namespaces = Namespaces::compile(&name, namespaces)?;
        let clusters = Selector::compile(&spec.cluster_selector, Of::Labels)
            .map_err(|error| at(&format!("spec.clusterSelector.{}", error.field), Problem::Selector(error.problem)))?;
        let releases = ReleaseMatcher::compile_all(&spec.releases)?;
        let ignore = spec.ignore.iter().enumerate().map(|(index, rule)| Ignore::compile(rule, &format!("spec.ignore[{index}]")));
        let (foreign, ignore) = (spec.foreign.unwrap_or_default(), ignore.collect::<Result<Arc<[Ignore]>, _>>()?);
        let exclusive = PathsOf::compile_all(&spec.exclusive, "spec.exclusive")?;
        let plain = Guard {
            policy: Some(name.clone()),
            mode: spec.mode,
            interval: spec.interval.0,
            foreign_tag: foreign_tag(foreign, &exclusive, &ignore),
            ignore,
            foreign,
            exclusive: exclusive.into(),
            enforce: PathsOf::compile_all(&spec.enforce, "spec.enforce")?.into(),
            recreate: spec.recreate.unwrap_or_default(),
            trust: false,
            on_failed: spec.on_failed_release,
            suspend: spec.suspend,
            contest: contest(spec.contest)?,
            limit: limit(spec.limit)?,
            approved: spec.approve.as_slice().into(),
        };
        let trusted = Guard { trust: true, ..plain.clone() };
        Ok(Self { name, priority: spec.priority, namespaces, clusters, releases, plain: Arc::new(plain), trusted: Arc::new(trusted) })
    }

    /// What is left of a policy that does not compile: what it selects is reported and never corrected, at its own priority. Leaving it
    /// out instead would hand its releases to a weaker policy, perhaps one that writes, or to nobody.
    ///
    /// Where a selection cannot be read it could be anything, so it is everything; an unknown priority could be any, so it is the highest.
    pub(super) fn report_only(name: PolicyName, spec: Option<&DriftPolicySpec>, namespaces: Option<&LabelSelector>) -> Self {
        let guard = Arc::new(Guard { policy: Some(name.clone()), ..Guard::default_warn() });
        Self {
            namespaces: Namespaces::compile(&name, namespaces).unwrap_or_else(|_| Namespaces::Labelled(Selector::default())),
            name,
            priority: spec.map_or(i32::MAX, |spec| spec.priority),
            clusters: spec.and_then(|spec| Selector::compile(&spec.cluster_selector, Of::Labels).ok()).unwrap_or_default(),
            releases: spec.and_then(|spec| ReleaseMatcher::compile_all(&spec.releases).ok()).unwrap_or_default(),
            plain: Arc::clone(&guard),
            trusted: guard,
        }
    }

    pub(super) fn rank(&self) -> Rank {
        if self.name.is_of_cluster() { Rank::ClusterDriftPolicy } else { Rank::DriftPolicy }
    }

    /// Whether it is for a cluster. What the labels of a namespace are must be known: a selector can also ask for what is not there.
    pub(super) fn selects(&self, cluster: &ClusterEntry) -> bool {
        let is_of_namespace = match &self.namespaces {
            Namespaces::Own => self.name.namespace == cluster.name.namespace,
            Namespaces::Labelled(selector) => cluster.namespace_labels.as_ref().is_some_and(|labels| selector.matches(labels)),
        };
        is_of_namespace && self.clusters.matches(&cluster.labels)
    }

    /// The guard for a release, if the policy selects it.
    pub(super) fn guard(&self, namespace: &str, release: &str) -> Option<&Arc<Guard>> {
        let mut selected = self.releases.is_empty();
        let mut trust = false;
        for matcher in self.releases.iter().filter(|matcher| matcher.matches(namespace, release)) {
            selected = true;
            trust |= matcher.trust;
        }
        selected.then_some(if trust { &self.trusted } else { &self.plain })
    }

    /// Its mode.
    pub(super) fn mode(&self) -> Mode {
        self.plain.mode
    }
}

impl ReleaseMatcher {
    fn compile_all(releases: &[ReleaseSelector]) -> Result<Box<[Self]>, PolicyError> {
        releases.iter().enumerate().map(|(index, release)| Self::compile(release, index)).collect()
    }

    fn compile(release: &ReleaseSelector, index: usize) -> Result<Self, PolicyError> {
        let glob = |text: &Option<String>, name: &str| {
            text.as_deref()
                .map(Glob::parse)
                .transpose()
                .map_err(|problem| at(&format!("spec.releases[{index}].{name}"), Problem::Glob(problem)))
        };
        Ok(Self { name: glob(&release.name, "name")?, namespace: glob(&release.namespace, "namespace")?, trust: release.trust.is_some() })
    }

    fn matches(&self, namespace: &str, name: &str) -> bool {
        self.namespace.as_ref().is_none_or(|glob| glob.matches(namespace)) && self.name.as_ref().is_none_or(|glob| glob.matches(name))
    }
}

fn contest(contest: Option<Contest>) -> Result<ContestRule, PolicyError> {
    let Some(Contest { rounds, window: Span(window) }) = contest else { return Ok(ContestRule::default()) };
    let day = Duration::from_hours(24);
    if (2..=20).contains(&rounds) && (Duration::from_secs(1)..=day).contains(&window) {
        Ok(ContestRule { rounds, window })
    } else {
        Err(at("spec.contest", Problem::Contest))
    }
}

fn limit(limit: Option<Limit>) -> Result<LimitRule, PolicyError> {
    let default = LimitRule::default();
    let Some(limit) = limit else { return Ok(default) };
    let blast = limit.blast_radius.map_or(default.blast, |radius| BlastRule { percent: radius.percent, min_objects: radius.min_objects });
    let makes_sense = (1..=6000).contains(&limit.corrections_per_minute) && (1..=100).contains(&blast.percent) && blast.min_objects >= 1;
    if makes_sense { Ok(LimitRule { per_minute: limit.corrections_per_minute, blast }) } else { Err(at("spec.limit", Problem::Limit)) }
}

fn foreign_tag(foreign: Foreign, exclusive: &[PathsOf], ignore: &[Ignore]) -> u64 {
    Digest::of_bytes(format!("{foreign:?} {exclusive:?} {ignore:?}").as_bytes()).number()
}
