//! Requests for the objects of one kind.

use std::fmt;
use std::marker::PhantomData;

use futures_util::future::ready;
use futures_util::stream::{BoxStream, StreamExt as _};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{
    DeleteParams, Evict, EvictParams, GetParams, ListParams, Log, LogParams, ObjectList, PartialObjectMeta,
    Patch, PatchParams, PostParams, Request, WatchEvent, WatchParams,
};
use kube::core::{DynamicResourceScope, ListMeta, NamespaceResourceScope, Status};
use kube::{Client, Error, Resource, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Codec;
use crate::list::Head;
use crate::send::{self, Built};

/// The objects of a kind, in a namespace or in all.
///
/// The methods are those of [`kube::Api`], with two differences: deletions return no object, and watches are boxed.
pub struct Api<K> {
    request: Request,
    client: Client,
    namespace: Option<String>,
    /// Whether the kind is only metadata (`PartialObjectMetadata`), which requests must ask the API server for.
    metadata: bool,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Api<K> {
    fn clone(&self) -> Self {
        Self {
            request: self.request.clone(),
            client: self.client.clone(),
            namespace: self.namespace.clone(),
            metadata: self.metadata,
            kind: PhantomData,
        }
    }
}

impl<K> fmt::Debug for Api<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Api").field("path", &self.request.url_path).finish_non_exhaustive()
    }
}

impl<K: Resource> From<kube::Api<K>> for Api<K> {
    fn from(api: kube::Api<K>) -> Self {
        let path = api.resource_url().to_owned();
        let namespace = api.namespace().map(ToOwned::to_owned);
        Self::new(api.into_client(), path, namespace)
    }
}

impl<K: Clone + Resource> From<&kube::Api<K>> for Api<K> {
    fn from(api: &kube::Api<K>) -> Self {
        api.clone().into()
    }
}

impl<K> From<&Self> for Api<K> {
    fn from(api: &Self) -> Self {
        api.clone()
    }
}

impl<K: Resource> Api<K> {
    /// The objects of a cluster-scoped kind, or those of all namespaces, which can only be listed and watched.
    pub fn all(client: Client) -> Self
    where
        K::DynamicType: Default,
    {
        Self::all_with(client, &K::DynamicType::default())
    }

    /// [`Api::all`] for a kind that is known only at run time.
    pub fn all_with(client: Client, kind: &K::DynamicType) -> Self {
        Self::new(client, K::url_path(kind, None), None)
    }

    /// The objects in a namespace.
    pub fn namespaced(client: Client, namespace: &str) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        let path = K::url_path(&K::DynamicType::default(), Some(namespace));
        Self::new(client, path, Some(namespace.to_owned()))
    }

    /// [`Api::namespaced`] for a kind that is known only at run time.
    pub fn namespaced_with(client: Client, namespace: &str, kind: &K::DynamicType) -> Self
    where
        K: Resource<Scope = DynamicResourceScope>,
    {
        Self::new(client, K::url_path(kind, Some(namespace)), Some(namespace.to_owned()))
    }

    /// The objects in the namespace that the client's configuration names.
    pub fn default_namespaced(client: Client) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        let namespace = client.default_namespace().to_owned();
        Self::namespaced(client, &namespace)
    }

    fn new(client: Client, path: String, namespace: Option<String>) -> Self {
        let metadata = K::metadata_api();
        Self { request: Request::new(path), client, namespace, metadata, kind: PhantomData }
    }
}

impl<K> Api<K> {
    /// The namespace; `None` for all namespaces or a cluster-scoped kind.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The client that sends the requests.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The path of the kind's objects in the API.
    pub fn resource_url(&self) -> &str {
        &self.request.url_path
    }
}

/// Objects.
impl<K: Codec> Api<K> {
    /// Reads an object.
    pub async fn get(&self, name: &str) -> Result<K> {
        let params = GetParams::default();
        let request = if self.metadata {
            self.request.get_metadata(name, &params)
        } else {
            self.request.get(name, &params)
        };
        self.object("get", request).await
    }

    /// Reads an object, if it exists.
    pub async fn get_opt(&self, name: &str) -> Result<Option<K>> {
        optional(self.get(name).await)
    }

    /// Lists objects.
    pub async fn list(&self, params: &ListParams) -> Result<ObjectList<K>> {
        let mut items = Vec::new();
        let Head { types, metadata } =
            self.items("list", self.list_request(params), &mut |object| items.push(object)).await?;
        Ok(ObjectList { types, metadata, items })
    }

    /// Lists objects, and calls a function with each of them before the next one is read. The list can still fail after that.
    /// Returns the metadata of the list.
    ///
    /// An object that cannot be decoded is logged and skipped. API servers store objects that a client cannot decode, such as
    /// custom resources whose schema is laxer than the client's type, and one of them must not hide all others.
    pub async fn list_each(&self, params: &ListParams, each: &mut (dyn FnMut(K) + Send)) -> Result<ListMeta> {
        let mut decode = |json: &str| {
            match K::decode(json) {
                Ok(object) => each(object),
                Err(error) => send::log_skipped(json, &error),
            }
            Ok(())
        };
        Ok(send::items(&self.client, "list", self.list_request(params), &mut decode).await?.metadata)
    }

    fn list_request(&self, params: &ListParams) -> Built {
        if self.metadata { self.request.list_metadata(params) } else { self.request.list(params) }
    }

    /// Creates an object.
    pub async fn create(&self, params: &PostParams, object: &K) -> Result<K> {
        let body = object.encode().map_err(Error::SerdeError)?;
        self.object("create", self.request.create(params, body)).await
    }

    /// Replaces an object.
    pub async fn replace(&self, name: &str, params: &PostParams, object: &K) -> Result<K> {
        let body = object.encode().map_err(Error::SerdeError)?;
        self.object("replace", self.request.replace(name, params, body)).await
    }

    /// Patches an object.
    pub async fn patch<P: Serialize>(&self, name: &str, params: &PatchParams, patch: &Patch<P>) -> Result<K> {
        let request = if self.metadata {
            self.request.patch_metadata(name, params, patch)
        } else {
            self.request.patch(name, params, patch)
        };
        self.object("patch", request).await
    }

    /// Watches objects from a resource version on.
    pub async fn watch(
        &self,
        params: &WatchParams,
        version: &str,
    ) -> Result<BoxStream<'static, Result<WatchEvent<K>>>> {
        let request = if self.metadata {
            self.request.watch_metadata(params, version)
        } else {
            self.request.watch(params, version)
        };
        self.events("watch", request).await
    }
}

/// Deletions.
impl<K> Api<K> {
    /// Deletes an object.
    pub async fn delete(&self, name: &str, params: &DeleteParams) -> Result<()> {
        send::text(&self.client, "delete", self.request.delete(name, params)).await.map(drop)
    }

    /// Deletes all objects that a selection matches.
    pub async fn delete_collection(&self, params: &DeleteParams, selection: &ListParams) -> Result<()> {
        let request = self.request.delete_collection(params, selection);
        send::text(&self.client, "delete_collection", request).await.map(drop)
    }
}

/// Metadata without the rest of objects.
impl<K: Clone + Send + Sync + 'static> Api<K> {
    /// Reads the metadata of an object.
    pub async fn get_metadata(&self, name: &str) -> Result<PartialObjectMeta<K>> {
        let request = self.request.get_metadata(name, &GetParams::default());
        self.object("get_metadata", request).await
    }

    /// Reads the metadata of an object, if it exists.
    pub async fn get_metadata_opt(&self, name: &str) -> Result<Option<PartialObjectMeta<K>>> {
        optional(self.get_metadata(name).await)
    }

    /// Lists the metadata of objects.
    pub async fn list_metadata(&self, params: &ListParams) -> Result<ObjectList<PartialObjectMeta<K>>> {
        let mut items = Vec::new();
        let request = self.request.list_metadata(params);
        let Head { types, metadata } =
            self.items("list_metadata", request, &mut |object| items.push(object)).await?;
        Ok(ObjectList { types, metadata, items })
    }

    /// Lists the metadata of objects like [`list_each`](Self::list_each), but fails if one cannot be decoded.
    pub async fn list_metadata_each(
        &self,
        params: &ListParams,
        each: &mut (dyn FnMut(PartialObjectMeta<K>) + Send),
    ) -> Result<ListMeta> {
        Ok(self.items("list_metadata", self.request.list_metadata(params), each).await?.metadata)
    }

    /// Patches an object, and returns its metadata.
    pub async fn patch_metadata<P: Serialize>(
        &self,
        name: &str,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<PartialObjectMeta<K>> {
        self.object("patch_metadata", self.request.patch_metadata(name, params, patch)).await
    }

    /// Watches the metadata of objects from a resource version on.
    pub async fn watch_metadata(
        &self,
        params: &WatchParams,
        version: &str,
    ) -> Result<BoxStream<'static, Result<WatchEvent<PartialObjectMeta<K>>>>> {
        self.events("watch_metadata", self.request.watch_metadata(params, version)).await
    }
}

/// Subresources.
impl<K: Codec> Api<K> {
    /// Reads a subresource.
    pub async fn get_subresource(&self, subresource: &str, name: &str) -> Result<K> {
        self.object("get_subresource", self.request.get_subresource(subresource, name)).await
    }

    /// Creates a subresource that has another kind, such as `Eviction`.
    pub async fn create_subresource<I: Serialize, T: DeserializeOwned>(
        &self,
        subresource: &str,
        name: &str,
        params: &PostParams,
        object: &I,
    ) -> Result<T> {
        let body = serde_json::to_vec(object).map_err(Error::SerdeError)?;
        let request = self.request.create_subresource(subresource, name, params, body);
        let json = send::text(&self.client, "create_subresource", request).await?;
        serde_json::from_str(&json).map_err(|error| send::decode_error(&json, error))
    }

    /// Patches a subresource.
    pub async fn patch_subresource<P: Serialize>(
        &self,
        subresource: &str,
        name: &str,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K> {
        let request = self.request.patch_subresource(subresource, name, params, patch);
        self.object("patch_subresource", request).await
    }

    /// Replaces a subresource.
    pub async fn replace_subresource(
        &self,
        subresource: &str,
        name: &str,
        params: &PostParams,
        object: &K,
    ) -> Result<K> {
        let body = object.encode().map_err(Error::SerdeError)?;
        let request = self.request.replace_subresource(subresource, name, params, body);
        self.object("replace_subresource", request).await
    }

    /// Reads an object through its status subresource.
    pub async fn get_status(&self, name: &str) -> Result<K> {
        self.get_subresource("status", name).await
    }

    /// Patches the status of an object.
    pub async fn patch_status<P: Serialize>(
        &self,
        name: &str,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K> {
        self.patch_subresource("status", name, params, patch).await
    }

    /// Replaces the status of an object.
    pub async fn replace_status(&self, name: &str, params: &PostParams, object: &K) -> Result<K> {
        self.replace_subresource("status", name, params, object).await
    }

    /// Patches the resources of a pod through its `/resize` subresource.
    pub async fn patch_resize<P: Serialize>(
        &self,
        name: &str,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K>
    where
        K: kube::api::Resize,
    {
        self.patch_subresource("resize", name, params, patch).await
    }

    /// Evicts a pod, if its disruption budgets allow it.
    pub async fn evict(&self, name: &str, params: &EvictParams) -> Result<Status>
    where
        K: Evict,
    {
        let json = send::text(&self.client, "evict", self.request.evict(name, params)).await?;
        serde_json::from_str(&json).map_err(|error| send::decode_error(&json, error))
    }

    /// Reads the log of a container.
    pub async fn logs(&self, name: &str, params: &LogParams) -> Result<String>
    where
        K: Log,
    {
        send::text(&self.client, "logs", self.request.logs(name, params)).await
    }
}

impl Api<ServiceAccount> {
    /// Requests a token of a service account.
    pub async fn create_token_request(
        &self,
        name: &str,
        params: &PostParams,
        request: &TokenRequest,
    ) -> Result<TokenRequest> {
        let body = request.encode().map_err(Error::SerdeError)?;
        self.object("create_token_request", self.request.create_subresource("token", name, params, body))
            .await
    }
}

impl<K> Api<K> {
    async fn object<T: Codec>(&self, verb: &'static str, request: Built) -> Result<T> {
        let json = send::text(&self.client, verb, request).await?;
        T::decode(&json).map_err(|error| send::decode_error(&json, error))
    }

    async fn items<T: Codec>(
        &self,
        verb: &'static str,
        request: Built,
        each: &mut (dyn FnMut(T) + Send),
    ) -> Result<Head> {
        let mut decode = |json: &str| {
            each(T::decode(json).map_err(|error| send::decode_error(json, error))?);
            Ok(())
        };
        send::items(&self.client, verb, request, &mut decode).await
    }

    async fn events<T: Codec>(
        &self,
        verb: &'static str,
        request: Built,
    ) -> Result<BoxStream<'static, Result<WatchEvent<T>>>> {
        let lines = send::lines(&self.client, verb, request).await?;
        let events = lines.filter_map(|line| {
            ready(match line {
                Ok(line) => match T::decode_event(&line) {
                    Ok(event) => Some(Ok(event)),
                    Err(error) => send::event_error(&line, error).map(Err),
                },
                Err(error) => Some(Err(error)),
            })
        });
        Ok(events.boxed())
    }
}

fn optional<T>(object: Result<T>) -> Result<Option<T>> {
    match object {
        Ok(object) => Ok(Some(object)),
        Err(Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
