//! The API server in process: one store, and front ends whose caches lag behind it.
