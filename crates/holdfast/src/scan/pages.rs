//! Whole lists, page by page.

use holdfast_fleet::{
    call::{ApiClient, CallError, Endpoint, ListQuery, Shape},
    meta::parse_list,
};
use serde_json::value::RawValue;

/// Objects on one page.
const PAGE: u32 = 500;

/// Reads every object of a list; `read` takes each one's JSON text.
pub async fn list(
    client: &ApiClient,
    endpoint: &Endpoint,
    shape: Shape,
    query: ListQuery,
    mut read: impl FnMut(&RawValue) -> Result<(), CallError>,
) -> Result<(), CallError> {
    let mut query = ListQuery { limit: PAGE, consistent: true, ..query };
    loop {
        let answer = client.list(endpoint, shape, &query).await?;
        let page = parse_list(answer.bytes()).map_err(|_| CallError::BadAnswer)?;
        for item in page.items {
            read(item)?;
        }
        match page.continue_token {
            Some(token) if !token.is_empty() => query.continue_token = token.into_owned(),
            _ => return Ok(()),
        }
    }
}
