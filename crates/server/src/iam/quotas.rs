//! Quotas, as an operator sets and reads them: of a bucket, of a user, and of an account over all its buckets.

use std::sync::Arc;

use gabion_store::{ConfigScope, Holder, Holding, StoreError};
use gabion_types::BucketName;
use serde_json::{Value, json};

use super::Iam;
use super::admin::Request;
use super::error::IamError;
use super::model::{AccountDoc, Quota, User};
use crate::s3::quota::NAME;

/// Whom a quota is of.
enum Of {
    Bucket(BucketName),
    /// The name of a user.
    User(String),
    Account,
}

impl Of {
    fn asked(request: &Request) -> Result<Self, IamError> {
        match (&request.bucket, &request.user) {
            (Some(name), None) => match BucketName::new(name) {
                Ok(bucket) => Ok(Self::Bucket(bucket)),
                Err(_) => Err(IamError::validation(format!("{name} is no name of a bucket."))),
            },
            (None, Some(user)) => Ok(Self::User(user.clone())),
            (None, None) => Ok(Self::Account),
            (Some(_), Some(_)) => Err(IamError::validation("Name a bucket or a user.")),
        }
    }
}

impl Iam {
    /// Limits what a bucket or a user may hold; without limits it is not limited any more.
    pub(super) async fn quota_set(self: &Arc<Self>, request: Request, quota: Quota) -> Result<Value, IamError> {
        match Of::asked(&request)? {
            Of::Bucket(bucket) => self.limit_bucket(bucket, quota).await,
            Of::User(name) => self.limit_user(request, name, quota).await,
            Of::Account => Err(IamError::validation("Name a bucket or a user.")),
        }
    }

    async fn limit_bucket(&self, bucket: BucketName, quota: Quota) -> Result<Value, IamError> {
        let scope = ConfigScope::Bucket(bucket.clone());
        let outcome = if quota.is_unlimited() {
            self.store.delete_config(scope, NAME).await
        } else {
            let document = serde_json::to_vec(&quota).map_err(|_| IamError::failure())?;
            self.store.put_config(scope, NAME, document.into()).await
        };
        outcome.map_err(|error| of_bucket(error, &bucket))?;
        Ok(json!({ "bucket": bucket.as_str(), "quota": quota }))
    }

    async fn limit_user(self: &Arc<Self>, request: Request, name: String, quota: Quota) -> Result<Value, IamError> {
        self.change(move |iam, draft| {
            let user = request.tenant(iam, &draft.state)?.user(&name)?;
            let user = User { quota, ..User::clone(user) };
            let shown = json!({ "account": user.named.account, "user": user.named.name, "quota": quota });
            draft.put_user(user, None)?;
            Ok(shown)
        })
        .await
    }

    /// Limits what all buckets of an account may hold together.
    pub(super) async fn account_quota(self: &Arc<Self>, request: Request) -> Result<Value, IamError> {
        let quota = request.quota();
        self.change(move |iam, draft| {
            let doc = AccountDoc { quota, ..request.tenant(iam, &draft.state)?.doc.clone() };
            let shown = json!({ "account": doc.id, "quota": doc.quota });
            draft.put_account(doc);
            Ok(shown)
        })
        .await
    }

    /// What is there, and may be.
    pub(super) fn quota_show(&self, request: &Request) -> Result<Value, IamError> {
        let state = self.state.load_full();
        match Of::asked(request)? {
            Of::Bucket(bucket) => {
                let held = self.store.holding(&Holder::Bucket(bucket.clone()));
                let held = held.map_err(|error| of_bucket(error, &bucket))?;
                let configs = self.store.bucket_configs(&bucket)?;
                let quota: Option<Value> = configs.get(NAME).and_then(|document| serde_json::from_slice(document).ok());
                Ok(shown(json!({ "bucket": bucket.as_str(), "quota": quota }), held))
            }
            Of::User(name) => {
                let user = request.tenant(self, &state)?.user(&name)?;
                let held = self.store.holding(&Holder::User(user.named.id.clone()))?;
                let named = json!({ "account": user.named.account, "user": user.named.name, "quota": user.quota });
                Ok(shown(named, held))
            }
            Of::Account => {
                let doc = &request.tenant(self, &state)?.doc;
                let held = self.store.holding(&Holder::Account(doc.canonical_id.clone()))?;
                Ok(shown(json!({ "account": doc.id, "quota": doc.quota }), held))
            }
        }
    }
}

fn shown(mut of: Value, held: Holding) -> Value {
    of["objects"] = json!(held.objects);
    of["bytes"] = json!(held.bytes);
    of["parts"] = json!(held.parts);
    of["part_bytes"] = json!(held.part_bytes);
    of
}

/// What a bucket's absence is for an operator.
fn of_bucket(error: StoreError, bucket: &BucketName) -> IamError {
    match error {
        StoreError::NoSuchBucket => IamError::no_entity("bucket", bucket.as_str()),
        other => other.into(),
    }
}
