//! Ignore rules of a policy, compiled.

use std::collections::BTreeMap;

use holdfast_api::policy::{IgnoreRule, Target};
use holdfast_engine::{
    object::ObjectKey,
    path::{Path, Pattern},
};
use jiff::Timestamp;

use super::{
    Glob,
    compile::{PolicyError, Problem, at},
    selector::{Of, Selector},
};

/// Labels or annotations of a desired object.
pub type Texts = BTreeMap<String, String>;

/// Drift that is accepted: of which objects, at which paths, written by whom, until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignore {
    target: TargetMatcher,
    patterns: Box<[Pattern]>,
    managers: Box<[Glob]>,
    until: Option<Timestamp>,
}

impl Ignore {
    pub(super) fn compile(rule: &IgnoreRule, field: &str) -> Result<Self, PolicyError> {
        if rule.paths.is_empty() && rule.managers.is_empty() {
            return Err(at(field, Problem::EmptyIgnoreRule));
        }
        let patterns =
            rule.paths.iter().enumerate().map(|(index, path)| {
                Pattern::parse(path).map_err(|problem| at(&format!("{field}.paths[{index}]"), Problem::Path(problem)))
            });
        let managers = rule.managers.iter().enumerate().map(|(index, manager)| {
            Glob::parse(manager).map_err(|problem| at(&format!("{field}.managers[{index}]"), Problem::Glob(problem)))
        });
        Ok(Self {
            target: TargetMatcher::compile(rule.target.as_ref(), &format!("{field}.target"))?,
            patterns: patterns.collect::<Result<_, _>>()?,
            managers: managers.collect::<Result<_, _>>()?,
            until: rule.until,
        })
    }

    /// Whether the rule is about this object at this time. Labels and annotations are those of the desired object: nothing on the
    /// workload cluster can bring an object under a rule.
    pub fn matches_object(&self, key: &ObjectKey, labels: &Texts, annotations: &Texts, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until) && self.target.matches(key, labels, annotations)
    }

    /// Whether the rule covers drift at `path` written by `manager`; `None` where nobody can be named.
    ///
    /// A rule without paths covers all paths, one without managers everybody; with both, both must fit.
    pub fn covers(&self, path: &Path, manager: Option<&str>) -> bool {
        (self.patterns.is_empty() || self.patterns.iter().any(|pattern| pattern.covers(path)))
            && (self.managers.is_empty() || manager.is_some_and(|manager| self.managers.iter().any(|glob| glob.matches(manager))))
    }

    /// The paths; empty means all.
    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// Globs over field managers; empty means everybody.
    pub fn managers(&self) -> &[Glob] {
        &self.managers
    }

    /// When the rule ends.
    pub fn until(&self) -> Option<Timestamp> {
        self.until
    }
}

/// Which objects a rule is about. The default one means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct TargetMatcher {
    group: Option<Glob>,
    version: Option<Glob>,
    kind: Option<Glob>,
    name: Option<Glob>,
    namespace: Option<Glob>,
    labels: Selector,
    annotations: Selector,
}

impl TargetMatcher {
    fn compile(target: Option<&Target>, field: &str) -> Result<Self, PolicyError> {
        let Some(target) = target else { return Ok(Self::default()) };
        let glob = |text: &Option<String>, name: &str| {
            text.as_deref().map(Glob::parse).transpose().map_err(|problem| at(&format!("{field}.{name}"), Problem::Glob(problem)))
        };
        let selector = |selector: &Option<_>, of, name: &str| {
            selector.as_ref().map_or_else(
                || Ok(Selector::default()),
                |selector| {
                    Selector::compile(selector, of)
                        .map_err(|error| at(&format!("{field}.{name}.{}", error.field), Problem::Selector(error.problem)))
                },
            )
        };
        Ok(Self {
            group: glob(&target.group, "group")?,
            version: glob(&target.version, "version")?,
            kind: glob(&target.kind, "kind")?,
            name: glob(&target.name, "name")?,
            namespace: glob(&target.namespace, "namespace")?,
            labels: selector(&target.label_selector, Of::Labels, "labelSelector")?,
            annotations: selector(&target.annotation_selector, Of::Annotations, "annotationSelector")?,
        })
    }

    fn matches(&self, key: &ObjectKey, labels: &Texts, annotations: &Texts) -> bool {
        let fits = |glob: &Option<Glob>, text: &str| glob.as_ref().is_none_or(|glob| glob.matches(text));
        fits(&self.group, &key.gvk.group)
            && fits(&self.version, &key.gvk.version)
            && fits(&self.kind, &key.gvk.kind)
            && fits(&self.name, &key.name)
            && fits(&self.namespace, key.namespace.as_deref().unwrap_or_default())
            && self.labels.matches(labels)
            && self.annotations.matches(annotations)
    }
}
