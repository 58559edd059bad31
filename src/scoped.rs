//! The objects of a kind where the operator works.

use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};

/// The objects of a kind in one namespace, or in all.
pub fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}
