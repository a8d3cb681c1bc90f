//! The node tree of a document, aliases unresolved.

use std::{borrow::Cow, collections::HashMap};

use saphyr_parser::{Event, Parser, ScalarStyle, Tag};

use super::YamlError;
use crate::limits::Limits;

/// Index of a node in its tree.
pub(super) type NodeId = usize;

/// A document: its nodes, and which is the root.
pub(super) struct Tree<'a> {
    nodes: Vec<Node<'a>>,
    root: Option<NodeId>,
}

/// A node of the tree.
pub(super) enum Node<'a> {
    Scalar {
        text: Cow<'a, str>,
        /// Neither quoted nor a block.
        plain: bool,
        tag: Option<String>,
    },
    Sequence(Vec<NodeId>),
    Mapping(Vec<(NodeId, NodeId)>),
    /// Stands for another node, which may contain it.
    Alias(NodeId),
}

impl<'a> Tree<'a> {
    /// The root; `None` for an empty document.
    pub(super) fn root(&self) -> Option<NodeId> {
        self.root
    }

    /// The node `id`.
    pub(super) fn node(&self, id: NodeId) -> Option<&Node<'a>> {
        self.nodes.get(id)
    }
}

/// Builds the tree of the first document of `text`.
pub(super) fn compose<'a>(text: &'a str, limits: &Limits, nodes: &mut usize) -> Result<Tree<'a>, YamlError> {
    if text.contains(|c| !is_allowed(c)) {
        return Err(YamlError::Character);
    }
    let mut composer = Composer { tree: Tree { nodes: Vec::new(), root: None }, open: Vec::new(), anchors: HashMap::new() };
    for event in Parser::new_from_str(text) {
        let (event, _) = event.map_err(|error| YamlError::Syntax { line: error.marker().line() })?;
        match event {
            Event::Nothing | Event::StreamStart | Event::DocumentStart(_) => {}
            Event::StreamEnd | Event::DocumentEnd => break,
            Event::SequenceEnd | Event::MappingEnd => composer.close(),
            Event::Alias(anchor) => {
                let target = composer.anchors.get(&anchor).copied().ok_or(YamlError::Syntax { line: 0 })?;
                composer.add(Node::Alias(target), 0);
            }
            Event::Scalar(text, style, anchor, tag) => {
                composer.add(Node::Scalar { text, plain: style == ScalarStyle::Plain, tag: tag.map(|tag| full(&tag)) }, anchor);
            }
            Event::SequenceStart(anchor, _) => composer.open(Node::Sequence(Vec::new()), anchor),
            Event::MappingStart(anchor, _) => composer.open(Node::Mapping(Vec::new()), anchor),
        }
        if composer.open.len() > limits.depth {
            return Err(YamlError::TooDeep);
        }
        if composer.tree.nodes.len() > *nodes {
            return Err(YamlError::TooManyNodes);
        }
    }
    Ok(composer.tree)
}

/// What go-yaml lets through, without the line breaks that only YAML 1.1 knows: they fold differently, and no chart
/// has been seen with one.
fn is_allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..) && !matches!(c, '\u{2028}' | '\u{2029}')
}

fn full(tag: &Tag) -> String {
    format!("{}{}", tag.handle, tag.suffix)
}

struct Composer<'a> {
    tree: Tree<'a>,
    /// The collections that are not closed yet, each with the key that waits for its value.
    open: Vec<(NodeId, Option<NodeId>)>,
    anchors: HashMap<usize, NodeId>,
}

impl<'a> Composer<'a> {
    /// Adds a node to the innermost open collection. `anchor` is 0 for none.
    fn add(&mut self, node: Node<'a>, anchor: usize) -> NodeId {
        let id = self.tree.nodes.len();
        self.tree.nodes.push(node);
        if anchor != 0 {
            self.anchors.insert(anchor, id);
        }
        match self.open.last_mut() {
            None => self.tree.root = Some(id),
            Some((parent, key)) => match (self.tree.nodes.get_mut(*parent), key.take()) {
                (Some(Node::Sequence(items)), _) => items.push(id),
                (Some(Node::Mapping(pairs)), Some(key)) => pairs.push((key, id)),
                _ => *key = Some(id),
            },
        }
        id
    }

    fn open(&mut self, node: Node<'a>, anchor: usize) {
        let id = self.add(node, anchor);
        self.open.push((id, None));
    }

    fn close(&mut self) {
        self.open.pop();
    }
}
