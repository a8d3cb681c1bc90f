//! What a scan reads as whole lists: release records and autoscalers.

use std::collections::BTreeSet;

use anyhow::Context as _;
use holdfast_engine::object::Gvk;
use holdfast_fleet::{
    call::{ApiClient, CallError, Endpoint, ListQuery, Shape},
    discovery::{Catalog, Lookup},
    meta::{Meta, parse_list},
};
use holdfast_helm::Store;
use holdfast_hub::cluster::{
    book::Book,
    records::{RECORD_LABELS, RecordSight, record_fields, record_place},
    scalers::{ScalerSight, Scalers},
};
use serde_json::value::RawValue;

use super::{Scope, survey::Purpose};

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

/// All release records. Where nothing is written, those that may not be listed are told and done without.
pub async fn book(client: &ApiClient, scope: &Scope, purpose: Purpose) -> anyhow::Result<Book> {
    let mut book = Book::default();
    for store in Store::ALL {
        match records(client, scope, store, &mut book).await {
            Ok(()) => {}
            Err(CallError::Forbidden) if purpose == Purpose::Write => anyhow::bail!(
                "these credentials may not list {} {scope}, where releases are kept; nothing is written while another release could declare \
                 the same objects unseen",
                if store == Store::Secrets { "Secrets" } else { "ConfigMaps" }
            ),
            Err(CallError::Forbidden) if store == Store::ConfigMaps => {
                eprintln!("holdfast: these credentials may not list ConfigMaps {scope}; releases that Helm keeps there are not seen");
            }
            Err(CallError::Forbidden) => anyhow::bail!(
                "these credentials may not list Secrets {scope}, where Helm keeps its releases; ask for get and list on secrets, or compare \
                 rendered manifests instead: helm template … | holdfast scan --manifest -"
            ),
            Err(error) => return Err(error).context("cannot list the release records"),
        }
        book.list_complete(store);
    }
    Ok(book)
}

async fn records(client: &ApiClient, scope: &Scope, store: Store, book: &mut Book) -> Result<(), CallError> {
    let place = record_place(store).and_then(|place| match scope {
        Scope::Namespace(namespace) => place.in_namespace(namespace),
        Scope::Cluster => Ok(place),
    });
    let query = ListQuery { labels: RECORD_LABELS.to_owned(), fields: record_fields(store).to_owned(), ..ListQuery::default() };
    list(client, &place.map_err(|_| CallError::BadPath)?, Shape::Metadata, query, |record| {
        let meta = Meta::of_object(record.get().as_bytes()).map_err(|_| CallError::BadAnswer)?;
        if let Some(sight) = RecordSight::of(store, &meta) {
            book.put(sight);
        }
        Ok(())
    })
    .await
}

/// The autoscalers of these namespaces, or of all. They are not complete where these credentials may not list them.
pub async fn scalers(client: &ApiClient, catalog: &Catalog, namespaces: Option<&BTreeSet<&str>>) -> anyhow::Result<Scalers> {
    let mut scalers = Scalers::default();
    scalers.reset();
    if catalog.lookup(&Gvk::new("autoscaling/v2", "HorizontalPodAutoscaler")) != Lookup::NotServed {
        let all = Endpoint::new("autoscaling", "v2", "horizontalpodautoscalers")?;
        let endpoints = match namespaces {
            None => vec![all],
            Some(namespaces) => namespaces.iter().map(|namespace| all.clone().in_namespace(namespace)).collect::<Result<_, _>>()?,
        };
        for endpoint in endpoints {
            let listed = list(client, &endpoint, Shape::Full, ListQuery::default(), |item| {
                if let Some(scaler) = ScalerSight::of_hpa(item.get()) {
                    scalers.put(scaler);
                }
                Ok(())
            })
            .await;
            if listed == Err(CallError::Forbidden) {
                eprintln!("holdfast: these credentials may not list autoscalers; replicas that one of them set show as drift");
                return Ok(scalers);
            }
            listed.context("cannot list autoscalers")?;
        }
    }
    scalers.list_complete();
    Ok(scalers)
}
