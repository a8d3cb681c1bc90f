//! What a scan reads as whole lists: release records, autoscalers, and who rewrites objects.

use std::collections::BTreeSet;

use anyhow::Context as _;
use holdfast_fleet::{
    call::{ApiClient, CallError, Endpoint, ListQuery, Shape},
    discovery::Catalog,
    meta::{Meta, parse_list},
};
use holdfast_helm::Store;
use holdfast_hub::cluster::{
    admission::{Admission, AdmissionKind, AdmissionSight},
    book::Book,
    records::{RECORD_LABELS, RecordSight, record_fields, record_place},
    scalers::{ScalerKind, ScalerSight, Scalers},
};
use serde_json::value::RawValue;

use super::{CLUSTER, Scope, survey::Purpose};

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
    for kind in ScalerKind::ALL {
        let Some(all) = kind.place(catalog) else { continue };
        let endpoints = match namespaces {
            None => vec![all],
            Some(namespaces) => namespaces.iter().map(|namespace| all.clone().in_namespace(namespace)).collect::<Result<_, _>>()?,
        };
        scalers.expect(kind);
        let mut is_complete = true;
        for endpoint in endpoints {
            let listed = list(client, &endpoint, Shape::Full, ListQuery::default(), |item| {
                if let Some(scaler) = ScalerSight::read(kind, CLUSTER, item.get()) {
                    scalers.put(scaler);
                }
                Ok(())
            })
            .await;
            match listed {
                Ok(()) => {}
                Err(CallError::Forbidden) => {
                    eprintln!("holdfast: these credentials may not list {}; what one of them set shows as drift", kind.plural());
                    is_complete = false;
                    break;
                }
                // Only a guess said that the kind may be served.
                Err(CallError::NotFound) => break,
                Err(error) => return Err(error).context("cannot list autoscalers"),
            }
        }
        if is_complete {
            scalers.list_complete(kind);
        }
    }
    Ok(scalers)
}

/// Who may rewrite objects. Only names depend on it, so what these credentials may not list is left out.
pub async fn admission(client: &ApiClient, catalog: &Catalog) -> Admission {
    let mut admission = Admission::default();
    for kind in AdmissionKind::ALL {
        let Some(endpoint) = kind.place(catalog) else { continue };
        let listed = list(client, &endpoint, Shape::Full, ListQuery::default(), |item| {
            if let Some(sight) = AdmissionSight::read(kind, item.get()) {
                admission.put(sight);
            }
            Ok(())
        })
        .await;
        if listed.is_err() {
            break;
        }
    }
    admission
}
