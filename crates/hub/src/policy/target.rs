//! Which objects a rule of a policy is about.

use std::{cell::LazyCell, collections::BTreeMap, fmt};

use holdfast_api::policy::Target;
use holdfast_engine::object::ObjectKey;

use super::{
    Glob,
    compile::{PolicyError, Problem, at},
    selector::{Of, Selector},
};

/// Labels or annotations of a desired object.
pub type Texts = BTreeMap<String, String>;

type Read<'a> = Box<dyn FnOnce() -> (Texts, Texts) + 'a>;

/// A declared object that rules may be about. Its labels and annotations are only looked up where a rule asks for them, and once: nothing on
/// the workload cluster can bring an object under a rule.
pub struct RuleSubject<'a> {
    key: &'a ObjectKey,
    texts: LazyCell<(Texts, Texts), Read<'a>>,
}

impl<'a> RuleSubject<'a> {
    /// An object; `texts` tells its declared labels and annotations.
    pub fn new(key: &'a ObjectKey, texts: impl FnOnce() -> (Texts, Texts) + 'a) -> Self {
        Self { key, texts: LazyCell::new(Box::new(texts)) }
    }
}

impl fmt::Debug for RuleSubject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RuleSubject").field(self.key).finish()
    }
}

/// Which objects a rule is about. The default one means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TargetMatcher {
    group: Option<Glob>,
    version: Option<Glob>,
    kind: Option<Glob>,
    name: Option<Glob>,
    namespace: Option<Glob>,
    labels: Selector,
    annotations: Selector,
}

impl TargetMatcher {
    pub(super) fn compile(target: Option<&Target>, field: &str) -> Result<Self, PolicyError> {
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

    pub(super) fn matches(&self, subject: &RuleSubject<'_>) -> bool {
        let any = Selector::default();
        self.fits(subject.key)
            && (self.labels == any || self.labels.matches(&subject.texts.0))
            && (self.annotations == any || self.annotations.matches(&subject.texts.1))
    }

    /// Whether kind and name fit.
    fn fits(&self, key: &ObjectKey) -> bool {
        let fits = |glob: &Option<Glob>, text: &str| glob.as_ref().is_none_or(|glob| glob.matches(text));
        fits(&self.group, &key.gvk.group)
            && fits(&self.version, &key.gvk.version)
            && fits(&self.kind, &key.gvk.kind)
            && fits(&self.name, &key.name)
            && fits(&self.namespace, key.namespace.as_deref().unwrap_or_default())
    }
}
