//! The controllers that Kubernetes brings along, as plain functions of the store.
