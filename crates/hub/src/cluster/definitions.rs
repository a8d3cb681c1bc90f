//! The definitions of custom kinds, as far as their metadata tells. Pure: fed by their watch, asked by the actor.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use holdfast_engine::normalise::is_custom_group;
use holdfast_fleet::discovery::{Catalog, Resource};

/// The `CustomResourceDefinitions` of one cluster. Each has the name `<plural>.<group>`.
#[derive(Debug, Default)]
pub struct Definitions {
    /// Whether each is being deleted.
    known: BTreeMap<Box<str>, bool>,
    /// Deleted ones that discovery may still list.
    gone: BTreeSet<Box<str>>,
    /// What the list under way has shown.
    listed: Option<BTreeSet<Box<str>>>,
    /// A list was complete: before, or where none is allowed, what is not known may exist.
    is_complete: bool,
}

impl Definitions {
    /// A list begins.
    pub fn list_begins(&mut self) {
        self.listed = Some(BTreeSet::new());
    }

    /// A definition was listed or changed. Answers whether its deletion began or another one took its place.
    pub fn put(&mut self, name: &str, is_leaving: bool) -> bool {
        if let Some(listed) = &mut self.listed {
            listed.insert(name.into());
        }
        self.gone.remove(name);
        self.known.insert(name.into(), is_leaving).unwrap_or_default() != is_leaving
    }

    /// A definition was deleted.
    pub fn remove(&mut self, name: &str) {
        self.known.remove(name);
        self.gone.insert(name.into());
    }

    /// The list is complete: definitions it does not hold are gone.
    pub fn list_ends(&mut self) {
        let Some(listed) = self.listed.take() else { return };
        self.is_complete = true;
        let gone = self.known.extract_if(.., |name, _| !listed.contains(name));
        self.gone.extend(gone.map(|(name, _)| name));
    }

    /// Whether the definition of a kind is being deleted.
    pub fn is_leaving(&self, resource: &Resource) -> bool {
        // Asked with every judgement: most kinds have no definition to look for.
        is_custom_group(&resource.gvk.group) && self.known.get(definition(resource).as_str()).copied().unwrap_or_default()
    }

    /// Whether there is a definition of this name.
    pub fn has(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }

    /// Whether there is certainly no definition of this name.
    pub fn lacks(&self, name: &str) -> bool {
        self.is_complete && !self.has(name)
    }

    /// Whether discovery lists the kinds that are defined and none that was. It follows definitions with a delay, and what is not
    /// established it never lists.
    pub fn agree_with(&mut self, catalog: &Catalog) -> bool {
        let served: HashSet<String> = catalog.resources().map(|resource| definition(resource)).collect();
        self.gone.retain(|name| served.contains(&**name));
        self.gone.is_empty() && self.known.keys().all(|name| served.contains(&**name))
    }
}

/// The name of the definition that a kind has if it is a custom one.
fn definition(resource: &Resource) -> String {
    format!("{}.{}", resource.plural, resource.gvk.group)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use holdfast_fleet::{
        discovery::{Discovery, Fetch, Fetched},
        watch::SourceError,
    };
    use serde_json::{Value, json};

    use super::*;

    /// A server that serves these plurals of `x.example`.
    struct Serves(Vec<&'static str>);

    impl Fetch for Serves {
        async fn fetch(&self, path: &str, _: &str, _: Option<&str>) -> Result<Fetched, SourceError> {
            let resource = |plural: &&str| json!({"resource": plural, "responseKind": {"kind": plural}, "scope": "Namespaced"});
            let resources: Vec<Value> = if path == "/apis" { self.0.iter().map(resource).collect() } else { Vec::new() };
            let group = json!({"metadata": {"name": "x.example"}, "versions": [{"version": "v1", "resources": resources}]});
            let document = json!({"kind": "APIGroupDiscoveryList", "items": [group]});
            Ok(Fetched::Document { body: Bytes::from(document.to_string()), etag: None })
        }
    }

    async fn catalog(served: &[&'static str]) -> std::sync::Arc<Catalog> {
        let mut discovery = Discovery::default();
        discovery.refresh(&Serves(served.to_vec())).await.unwrap();
        discovery.catalog()
    }

    #[tokio::test]
    async fn discovery_is_doubted_until_it_lists_what_is_defined_and_nothing_else() {
        let mut definitions = Definitions::default();
        assert!(definitions.agree_with(&*catalog(&["builtin"]).await), "not every kind has a definition");
        assert!(!definitions.put("as.x.example", false));
        assert!(!definitions.agree_with(&*catalog(&[]).await));
        assert!(definitions.agree_with(&*catalog(&["as"]).await));
        definitions.remove("as.x.example");
        assert!(!definitions.agree_with(&*catalog(&["as"]).await), "it is gone");
        assert!(definitions.agree_with(&*catalog(&[]).await));
        assert!(definitions.agree_with(&*catalog(&["as"]).await), "and forgotten");
    }

    #[tokio::test]
    async fn a_deletion_that_begins_is_news_and_a_list_shows_what_is_gone() {
        let mut definitions = Definitions::default();
        definitions.put("as.x.example", false);
        definitions.put("bs.x.example", false);
        assert!(definitions.put("as.x.example", true) && !definitions.put("as.x.example", true));
        let served = catalog(&["as", "bs"]).await;
        let leaving = |definitions: &Definitions| {
            let mut leaving: Vec<&str> =
                served.resources().filter(|resource| definitions.is_leaving(resource)).map(|resource| &*resource.plural).collect();
            leaving.sort_unstable();
            leaving.join(" ")
        };
        assert_eq!(leaving(&definitions), "as");
        definitions.list_begins();
        assert!(definitions.put("as.x.example", false), "another one of the name");
        assert!(definitions.has("as.x.example") && !definitions.lacks("cs.x.example"), "nothing was listed completely yet");
        definitions.list_ends();
        assert!(definitions.lacks("bs.x.example") && !definitions.lacks("as.x.example"));
        assert_eq!(leaving(&definitions), "");
        assert!(!definitions.agree_with(&served), "the list did not hold the other one");
        assert!(definitions.agree_with(&*catalog(&["as"]).await));
    }
}
