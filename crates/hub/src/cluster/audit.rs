//! The periodic audit of one kind: a fresh metadata list, independent of watches (design §3.10).

use std::collections::HashSet;

use holdfast_engine::object::Gvk;
use holdfast_fleet::{
    call::{ApiClient, CallError, Endpoint, ListQuery, Shape},
    meta::parse_list,
};

use super::{
    sight::News,
    sighting::{Decoder, HELM_LABELS, Sighting},
    state::StateId,
};

/// Objects on one page.
const PAGE: u32 = 500;

/// What an audit found.
#[derive(Debug, Default)]
pub struct Audit {
    /// Every guarded object the list holds.
    pub listed: HashSet<StateId>,
    /// Those of which an owned path may have changed.
    pub changed: Vec<(StateId, News)>,
}

/// Lists a kind. An error anywhere makes the whole audit void: half a list proves nothing.
pub async fn audit(client: &ApiClient, decoder: &Decoder, gvk: &Gvk, endpoint: &Endpoint) -> Result<Audit, CallError> {
    let mut audit = Audit::default();
    let mut query = ListQuery { labels: HELM_LABELS.to_owned(), limit: PAGE, consistent: true, ..ListQuery::default() };
    loop {
        let answer = client.list(endpoint, Shape::Metadata, &query).await?;
        let page = parse_list(answer.bytes()).map_err(|_| CallError::BadAnswer)?;
        for meta in page.metas() {
            let meta = meta.map_err(|_| CallError::BadAnswer)?;
            if let Sighting::Object { id, news, .. } = decoder.object(gvk, &meta) {
                audit.listed.insert(id);
                if news != News::Known {
                    audit.changed.push((id, news));
                }
            }
        }
        match page.continue_token {
            Some(token) if !token.is_empty() => query.continue_token = token.into_owned(),
            _ => return Ok(audit),
        }
    }
}
