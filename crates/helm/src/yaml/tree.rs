//! The node tree of a document, aliases unresolved.

use std::collections::HashMap;

use super::{
    YamlError,
    property::{Directive, Tag},
    scanner::{Scanner, Token},
};
use crate::limits::Limits;

/// Index of a node in its tree.
pub(super) type NodeId = usize;

/// A document: its nodes, and which is the root.
pub(super) struct Tree {
    nodes: Vec<Node>,
    root: Option<NodeId>,
}

/// A node of the tree.
pub(super) enum Node {
    Scalar {
        text: String,
        /// Neither quoted nor a block.
        plain: bool,
        tag: Option<String>,
    },
    Sequence(Vec<NodeId>),
    Mapping(Vec<(NodeId, NodeId)>),
    /// Stands for another node, which may contain it.
    Alias(NodeId),
}

impl Tree {
    /// The root; `None` for an empty document.
    pub(super) fn root(&self) -> Option<NodeId> {
        self.root
    }

    /// The node `id`.
    pub(super) fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id)
    }
}

/// Builds the tree of the first document of `text`.
pub(super) fn compose(text: &str, limits: &Limits, max_nodes: usize) -> Result<Tree, YamlError> {
    if text.contains(|c| !is_allowed(c)) {
        return Err(YamlError::Character);
    }
    let mut composer = Composer {
        scanner: Scanner::new(text, limits.depth),
        tree: Tree { nodes: Vec::new(), root: None },
        anchors: HashMap::new(),
        handles: HashMap::new(),
        depth_left: limits.depth,
        max_nodes,
    };
    composer.document()?;
    Ok(composer.tree)
}

/// The characters go-yaml lets through.
fn is_allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

struct Composer<'a> {
    scanner: Scanner<'a>,
    tree: Tree,
    anchors: HashMap<&'a str, NodeId>,
    /// What `%TAG` directives said.
    handles: HashMap<String, String>,
    depth_left: usize,
    max_nodes: usize,
}

/// Where a node stands, which decides what it can be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Flow,
    Block,
    /// In a block mapping, where a sequence may stand at the mapping's own column.
    InMapping,
}

impl<'a> Composer<'a> {
    fn document(&mut self) -> Result<(), YamlError> {
        match self.scanner.peek()? {
            Token::StreamEnd => return Ok(()),
            Token::Directive(_) | Token::DocumentStart => {
                self.directives()?;
                if !matches!(self.scanner.take()?, Token::DocumentStart) {
                    return Err(self.scanner.error());
                }
                if matches!(self.scanner.peek()?, Token::Directive(_) | Token::DocumentStart | Token::DocumentEnd | Token::StreamEnd) {
                    return Ok(());
                }
            }
            _ => {}
        }
        self.tree.root = Some(self.node(Place::Block)?);
        // go-yaml looks at one more token and leaves the rest of the text alone.
        self.scanner.peek().map(|_| ())
    }

    fn directives(&mut self) -> Result<(), YamlError> {
        let mut versions = 0;
        while matches!(self.scanner.peek()?, Token::Directive(_)) {
            let Token::Directive(directive) = self.scanner.take()? else { break };
            let valid = match directive {
                Directive::Version { supported } => {
                    versions += 1;
                    supported && versions == 1
                }
                Directive::Tag { handle, prefix } => self.handles.insert(handle, prefix).is_none(),
            };
            if !valid {
                return Err(self.scanner.error());
            }
        }
        Ok(())
    }

    fn node(&mut self, place: Place) -> Result<NodeId, YamlError> {
        self.depth_left = self.depth_left.checked_sub(1).ok_or(YamlError::TooDeep)?;
        let node = self.node_here(place);
        self.depth_left += 1;
        node
    }

    fn node_here(&mut self, place: Place) -> Result<NodeId, YamlError> {
        if let Token::Alias(name) = *self.scanner.peek()? {
            self.scanner.take()?;
            let target = self.anchors.get(name).copied().ok_or_else(|| self.scanner.error())?;
            return self.add(Node::Alias(target), None);
        }
        let (anchor, tag) = self.properties()?;
        match self.scanner.peek()? {
            Token::BlockEntry if place == Place::InMapping => {
                let id = self.add(Node::Sequence(Vec::new()), anchor)?;
                self.sequence_in_mapping(id)?;
                Ok(id)
            }
            Token::Scalar { .. } => {
                let Token::Scalar { text, plain } = self.scanner.take()? else { return Err(self.scanner.error()) };
                self.add(Node::Scalar { text, plain, tag }, anchor)
            }
            Token::FlowSequenceStart => {
                let id = self.add(Node::Sequence(Vec::new()), anchor)?;
                self.scanner.take()?;
                self.flow_sequence(id)?;
                Ok(id)
            }
            Token::FlowMappingStart => {
                let id = self.add(Node::Mapping(Vec::new()), anchor)?;
                self.scanner.take()?;
                self.flow_mapping(id)?;
                Ok(id)
            }
            Token::BlockSequenceStart if place != Place::Flow => {
                let id = self.add(Node::Sequence(Vec::new()), anchor)?;
                self.scanner.take()?;
                self.block_sequence(id)?;
                Ok(id)
            }
            Token::BlockMappingStart if place != Place::Flow => {
                let id = self.add(Node::Mapping(Vec::new()), anchor)?;
                self.scanner.take()?;
                self.block_mapping(id)?;
                Ok(id)
            }
            _ if anchor.is_some() || tag.is_some() => self.add(Node::Scalar { text: String::new(), plain: tag.is_none(), tag }, anchor),
            _ => Err(self.scanner.error()),
        }
    }

    /// An anchor and a tag, in either order.
    fn properties(&mut self) -> Result<(Option<&'a str>, Option<String>), YamlError> {
        let (mut anchor, mut tag) = (None, None);
        loop {
            match self.scanner.peek()? {
                Token::Anchor(name) if anchor.is_none() => {
                    anchor = Some(*name);
                    self.scanner.take()?;
                }
                Token::Tag(_) if tag.is_none() => {
                    let Token::Tag(written) = self.scanner.take()? else { break };
                    tag = Some(self.full(&written)?);
                }
                _ => break,
            }
        }
        Ok((anchor, tag))
    }

    fn full(&self, tag: &Tag) -> Result<String, YamlError> {
        let prefix = match (self.handles.get(&tag.handle), tag.handle.as_str()) {
            (_, "") => "",
            (Some(prefix), _) => prefix,
            (None, "!") => "!",
            (None, "!!") => super::scalar::CORE,
            (None, _) => return Err(self.scanner.error()),
        };
        Ok(format!("{prefix}{}", tag.suffix))
    }

    fn block_sequence(&mut self, id: NodeId) -> Result<(), YamlError> {
        loop {
            match self.scanner.take()? {
                Token::BlockEnd => return Ok(()),
                Token::BlockEntry => {
                    let item = match self.scanner.peek()? {
                        Token::BlockEntry | Token::BlockEnd => self.empty()?,
                        _ => self.node(Place::Block)?,
                    };
                    self.push(id, item);
                }
                _ => return Err(self.scanner.error()),
            }
        }
    }

    fn sequence_in_mapping(&mut self, id: NodeId) -> Result<(), YamlError> {
        while matches!(self.scanner.peek()?, Token::BlockEntry) {
            self.scanner.take()?;
            let item = match self.scanner.peek()? {
                Token::BlockEntry | Token::Key | Token::Value | Token::BlockEnd => self.empty()?,
                _ => self.node(Place::Block)?,
            };
            self.push(id, item);
        }
        Ok(())
    }

    fn block_mapping(&mut self, id: NodeId) -> Result<(), YamlError> {
        loop {
            match self.scanner.take()? {
                Token::BlockEnd => return Ok(()),
                Token::Key => {
                    let key = self.node_of_mapping()?;
                    let value = if matches!(self.scanner.peek()?, Token::Value) {
                        self.scanner.take()?;
                        self.node_of_mapping()?
                    } else {
                        self.empty()?
                    };
                    self.insert(id, key, value);
                }
                _ => return Err(self.scanner.error()),
            }
        }
    }

    fn node_of_mapping(&mut self) -> Result<NodeId, YamlError> {
        match self.scanner.peek()? {
            Token::Key | Token::Value | Token::BlockEnd => self.empty(),
            _ => self.node(Place::InMapping),
        }
    }

    fn flow_sequence(&mut self, id: NodeId) -> Result<(), YamlError> {
        let mut first = true;
        loop {
            if self.flow_ends(first, |token| matches!(token, Token::FlowSequenceEnd))? {
                return Ok(());
            }
            first = false;
            let item = if matches!(self.scanner.peek()?, Token::Key) {
                self.scanner.take()?;
                self.pair_in_sequence()?
            } else {
                self.node(Place::Flow)?
            };
            self.push(id, item);
        }
    }

    /// `[key: value]`: a mapping of one pair.
    fn pair_in_sequence(&mut self) -> Result<NodeId, YamlError> {
        let id = self.add(Node::Mapping(Vec::new()), None)?;
        let key = if matches!(self.scanner.peek()?, Token::Value | Token::FlowEntry | Token::FlowSequenceEnd) {
            // go-yaml drops this token, whatever it is.
            self.scanner.take()?;
            self.empty()?
        } else {
            self.node(Place::Flow)?
        };
        let value = self.flow_value(|token| matches!(token, Token::FlowEntry | Token::FlowSequenceEnd))?;
        self.insert(id, key, value);
        Ok(id)
    }

    fn flow_mapping(&mut self, id: NodeId) -> Result<(), YamlError> {
        let ends = |token: &Token<'_>| matches!(token, Token::FlowEntry | Token::FlowMappingEnd);
        let mut first = true;
        loop {
            if self.flow_ends(first, |token| matches!(token, Token::FlowMappingEnd))? {
                return Ok(());
            }
            first = false;
            let (key, value) = if matches!(self.scanner.peek()?, Token::Key) {
                self.scanner.take()?;
                let token = self.scanner.peek()?;
                let key = if ends(token) || matches!(token, Token::Value) { self.empty()? } else { self.node(Place::Flow)? };
                (key, self.flow_value(ends)?)
            } else {
                (self.node(Place::Flow)?, self.empty()?)
            };
            self.insert(id, key, value);
        }
    }

    /// The comma between two entries, or the end, which may follow a comma.
    fn flow_ends(&mut self, first: bool, is_end: impl Fn(&Token<'_>) -> bool) -> Result<bool, YamlError> {
        if !first && !is_end(self.scanner.peek()?) && !matches!(self.scanner.take()?, Token::FlowEntry) {
            return Err(self.scanner.error());
        }
        let ends = is_end(self.scanner.peek()?);
        if ends {
            self.scanner.take()?;
        }
        Ok(ends)
    }

    fn flow_value(&mut self, ends: impl Fn(&Token<'_>) -> bool) -> Result<NodeId, YamlError> {
        if !matches!(self.scanner.peek()?, Token::Value) {
            return self.empty();
        }
        self.scanner.take()?;
        if ends(self.scanner.peek()?) { self.empty() } else { self.node(Place::Flow) }
    }

    fn empty(&mut self) -> Result<NodeId, YamlError> {
        self.add(Node::Scalar { text: String::new(), plain: true, tag: None }, None)
    }

    fn add(&mut self, node: Node, anchor: Option<&'a str>) -> Result<NodeId, YamlError> {
        let id = self.tree.nodes.len();
        if id >= self.max_nodes {
            return Err(YamlError::TooManyNodes);
        }
        self.tree.nodes.push(node);
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor, id);
        }
        Ok(id)
    }

    fn push(&mut self, sequence: NodeId, item: NodeId) {
        if let Some(Node::Sequence(items)) = self.tree.nodes.get_mut(sequence) {
            items.push(item);
        }
    }

    fn insert(&mut self, mapping: NodeId, key: NodeId, value: NodeId) {
        if let Some(Node::Mapping(pairs)) = self.tree.nodes.get_mut(mapping) {
            pairs.push((key, value));
        }
    }
}
