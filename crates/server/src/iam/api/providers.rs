//! OpenID Connect providers whom an account trusts: create, get, list, update, delete.

use std::sync::Arc;

use super::super::Iam;
use super::super::error::IamError;
use super::super::model::{Provider, host_of, is_prefix_of_keys};
use super::{Ask, Reply, nothing, tenant, write_tags};
use crate::s3::{Xml, date};

/// Most providers of an account, as on AWS.
const PROVIDERS_MAX: usize = 100;
const CLIENT_IDS_MAX: usize = 100;
const THUMBPRINTS_MAX: usize = 5;

pub(super) async fn create(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let url = ask.form.required("Url")?.to_owned();
    check_url(&url)?;
    let (client_ids, thumbprints) = (ask.form.list("ClientIDList"), ask.form.list("ThumbprintList"));
    check_lists(&client_ids, &thumbprints)?;
    let account = ask.account().to_owned();
    let provider = Provider {
        account: account.clone(),
        url,
        client_ids,
        thumbprints,
        created_ms: iam.now_ms(),
        tags: ask.form.tags("Tags")?,
    };
    let arn = provider.arn();
    ask.authorize("iam:CreateOpenIDConnectProvider", &arn)?;
    let reply = Xml::fragment(|xml| {
        xml.text("OpenIDConnectProviderArn", &arn);
        write_tags(xml, &provider.tags);
    });
    iam.change(move |_, draft| {
        let tenant = draft.state.tenant(&account)?;
        if tenant.providers.contains_key(provider.host()) {
            return Err(IamError::exists("Provider", &provider.url));
        }
        if tenant.providers.len() >= PROVIDERS_MAX {
            return Err(IamError::limit(format!(
                "Cannot exceed quota for OpenIdConnectProvidersPerAccount: {PROVIDERS_MAX}"
            )));
        }
        draft.put_provider(provider)?;
        Ok(reply)
    })
    .await
}

pub(super) async fn get(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let arn = ask.form.required("OpenIDConnectProviderArn")?;
    ask.authorize("iam:GetOpenIDConnectProvider", arn)?;
    let (_, tenant) = tenant(iam, ask)?;
    let provider = tenant.provider(arn)?;
    Ok(Xml::fragment(|xml| {
        xml.text("Url", &provider.url);
        list_of(xml, "ClientIDList", &provider.client_ids);
        list_of(xml, "ThumbprintList", &provider.thumbprints);
        xml.value("CreateDate", date::iso(provider.created_ms));
        write_tags(xml, &provider.tags);
    }))
}

fn list_of(xml: &mut Xml, name: &str, members: &[String]) {
    xml.element(name, |xml| {
        for member in members {
            xml.text("member", member);
        }
    });
}

pub(super) async fn list(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    ask.authorize("iam:ListOpenIDConnectProviders", &format!("arn:aws:iam::{}:oidc-provider/*", ask.account()))?;
    let (_, tenant) = tenant(iam, ask)?;
    Ok(Xml::fragment(|xml| {
        xml.element("OpenIDConnectProviderList", |xml| {
            for provider in tenant.providers.values() {
                xml.element("member", |xml| xml.text("Arn", provider.arn()));
            }
        });
    }))
}

pub(super) async fn delete(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let arn = ask.form.required("OpenIDConnectProviderArn")?.to_owned();
    ask.authorize("iam:DeleteOpenIDConnectProvider", &arn)?;
    let account = ask.account().to_owned();
    iam.change(move |_, draft| {
        let provider = Arc::clone(draft.state.tenant(&account)?.provider(&arn)?);
        draft.remove_provider(&provider)?;
        Ok(nothing())
    })
    .await
}

pub(super) async fn add_client(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let id = ask.form.required("ClientID")?.to_owned();
    change(iam, ask, "iam:AddClientIDToOpenIDConnectProvider", move |provider| {
        if !provider.client_ids.contains(&id) {
            provider.client_ids.push(id);
        }
    })
    .await
}

pub(super) async fn remove_client(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let id = ask.form.required("ClientID")?.to_owned();
    change(iam, ask, "iam:RemoveClientIDFromOpenIDConnectProvider", move |provider| {
        provider.client_ids.retain(|known| *known != id);
    })
    .await
}

pub(super) async fn update_thumbprints(iam: &Arc<Iam>, ask: &Ask) -> Result<Reply, IamError> {
    let thumbprints = ask.form.list("ThumbprintList");
    if thumbprints.is_empty() {
        return Err(IamError::missing("ThumbprintList"));
    }
    change(iam, ask, "iam:UpdateOpenIDConnectProviderThumbprint", move |provider| provider.thumbprints = thumbprints)
        .await
}

async fn change<F>(iam: &Arc<Iam>, ask: &Ask, action: &str, change: F) -> Result<Reply, IamError>
where
    F: FnOnce(&mut Provider) + Send + 'static,
{
    let arn = ask.form.required("OpenIDConnectProviderArn")?.to_owned();
    ask.authorize(action, &arn)?;
    let account = ask.account().to_owned();
    iam.change(move |_, draft| {
        let mut provider = Provider::clone(draft.state.tenant(&account)?.provider(&arn)?);
        change(&mut provider);
        check_lists(&provider.client_ids, &provider.thumbprints)?;
        draft.put_provider(provider)?;
        Ok(nothing())
    })
    .await
}

fn check_url(url: &str) -> Result<(), IamError> {
    let fits = url.len() <= 255 && (url.starts_with("https://") || url.starts_with("http://"));
    let host = host_of(url);
    let plain = host.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#@\\\"".contains(&byte));
    if fits && plain && !host.is_empty() && !is_prefix_of_keys(host) {
        return Ok(());
    }
    Err(IamError::validation("Invalid Open ID Connect Provider URL"))
}

fn check_lists(client_ids: &[String], thumbprints: &[String]) -> Result<(), IamError> {
    if client_ids.len() > CLIENT_IDS_MAX || thumbprints.len() > THUMBPRINTS_MAX {
        return Err(IamError::limit(format!(
            "There may be at most {CLIENT_IDS_MAX} client ids and {THUMBPRINTS_MAX} thumbprints."
        )));
    }
    if client_ids.iter().any(|id| !(1..=255).contains(&id.len())) || thumbprints.iter().any(|print| print.len() != 40) {
        return Err(IamError::validation("A client id has 1 to 255 characters, a thumbprint 40."));
    }
    Ok(())
}
