// Package kube holds the tests that need a real Kubernetes: make test-k8s sets one up
// (e2e/k8s) and runs them.
package kube
