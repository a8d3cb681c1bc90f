//! From the node tree to the JSON value that travels.

use serde_json::{Map, Value};

use super::{
    YamlError,
    scalar::{self, Scalar},
    tree::{Node, NodeId, Tree},
};
use crate::limits::{Budget, Limits};

/// Tag of a merge key written out.
const MERGE_TAG: &str = "tag:yaml.org,2002:merge";

/// Decodes `tree`; an empty one is null.
pub(super) fn decode(tree: &Tree, limits: &Limits, budget: &mut Budget) -> Result<Value, YamlError> {
    let Some(root) = tree.root() else { return Ok(Value::Null) };
    Decoder { tree, depth_left: limits.depth, budget, decoded: 0, through_aliases: 0, aliases_open: 0 }.value(root)
}

struct Decoder<'t> {
    tree: &'t Tree,
    depth_left: usize,
    budget: &'t mut Budget,
    /// Nodes decoded so far.
    decoded: u32,
    /// Those of them that stand behind an alias.
    through_aliases: u32,
    aliases_open: u32,
}

impl Decoder<'_> {
    fn value(&mut self, id: NodeId) -> Result<Value, YamlError> {
        self.count()?;
        match self.tree.node(id).ok_or(YamlError::TooDeep)? {
            Node::Scalar { text, plain, tag } => {
                self.budget.take_text(text)?;
                scalar::resolve(text, *plain, tag.as_deref())?.into_value()
            }
            Node::Alias(target) => self.nested(true, |decoder| decoder.value(*target)),
            Node::Sequence(items) => {
                self.nested(false, |decoder| items.iter().map(|item| decoder.value(*item)).collect::<Result<_, _>>().map(Value::Array))
            }
            Node::Mapping(pairs) => {
                let mut map = Map::new();
                self.nested(false, |decoder| decoder.pairs(pairs, &mut map))?;
                Ok(Value::Object(map))
            }
        }
    }

    /// Decodes pairs into `map`: of two equal keys the later wins, also one that a merge brings.
    fn pairs(&mut self, pairs: &[(NodeId, NodeId)], map: &mut Map<String, Value>) -> Result<(), YamlError> {
        for (key, value) in pairs {
            if self.is_merge(*key) {
                self.merge(*value, map)?;
                continue;
            }
            let key = self.key(*key)?;
            let value = self.value(*value)?;
            map.insert(key, value);
        }
        Ok(())
    }

    fn key(&mut self, id: NodeId) -> Result<String, YamlError> {
        self.count()?;
        match self.tree.node(id).ok_or(YamlError::TooDeep)? {
            Node::Scalar { text, plain, tag } => {
                self.budget.take_text(text)?;
                scalar::resolve(text, *plain, tag.as_deref()).and_then(Scalar::into_key)
            }
            Node::Alias(target) => self.nested(true, |decoder| decoder.key(*target)),
            Node::Sequence(_) | Node::Mapping(_) => Err(YamlError::BadKey),
        }
    }

    fn is_merge(&self, key: NodeId) -> bool {
        match self.tree.node(key) {
            Some(Node::Scalar { text, plain, tag }) if text == "<<" => match tag.as_deref() {
                None => *plain,
                Some(tag) => tag == "!" || tag == MERGE_TAG,
            },
            _ => false,
        }
    }

    fn merge(&mut self, id: NodeId, map: &mut Map<String, Value>) -> Result<(), YamlError> {
        match self.tree.node(id) {
            // Of several mappings an earlier one takes precedence.
            Some(Node::Sequence(items)) => items.iter().rev().try_for_each(|item| self.merge_one(*item, map)),
            _ => self.merge_one(id, map),
        }
    }

    fn merge_one(&mut self, id: NodeId, map: &mut Map<String, Value>) -> Result<(), YamlError> {
        self.count()?;
        match self.tree.node(id) {
            Some(Node::Mapping(pairs)) => self.nested(false, |decoder| decoder.pairs(pairs, map)),
            Some(Node::Alias(target)) => match self.tree.node(*target) {
                Some(Node::Mapping(_)) => self.nested(true, |decoder| decoder.merge_one(*target, map)),
                _ => Err(YamlError::BadMerge),
            },
            _ => Err(YamlError::BadMerge),
        }
    }

    /// Runs `inner` one level deeper. An alias that contains itself runs out of levels.
    fn nested<T>(&mut self, alias: bool, inner: impl FnOnce(&mut Self) -> Result<T, YamlError>) -> Result<T, YamlError> {
        self.depth_left = self.depth_left.checked_sub(1).ok_or(YamlError::TooDeep)?;
        self.aliases_open += u32::from(alias);
        let result = inner(self);
        self.aliases_open -= u32::from(alias);
        self.depth_left += 1;
        result
    }

    fn count(&mut self) -> Result<(), YamlError> {
        self.budget.take_nodes(1)?;
        self.decoded += 1;
        self.through_aliases += u32::from(self.aliases_open > 0);
        let excessive = self.through_aliases > 100
            && self.decoded > 1000
            && f64::from(self.through_aliases) / f64::from(self.decoded) > allowed_alias_share(self.decoded);
        if excessive { Err(YamlError::TooManyNodes) } else { Ok(()) }
    }
}

/// The share of nodes go-yaml lets come from aliases: nearly all in a small document, a tenth in a very large one.
fn allowed_alias_share(decoded: u32) -> f64 {
    const LOW: f64 = 400_000.0;
    const HIGH: f64 = 4_000_000.0;
    let decoded = f64::from(decoded).clamp(LOW, HIGH);
    0.99 - 0.89 * (decoded - LOW) / (HIGH - LOW)
}
