{{/*
The operator's rules: one list for the ClusterRole, or for the Role in each namespace. It may
grant a run's account "get" and "patch" on a ConfigMap because it holds both; hence neither
"escalate" nor "bind".
*/}}
{{- define "drivetrain.rules" -}}
- apiGroups: [drivetrain.dev]
  resources: [trainingruns]
  verbs: [list, watch]
- apiGroups: [drivetrain.dev]
  resources: [trainingruns/status]
  verbs: [patch]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, delete]
- apiGroups: [""]
  resources: [services, serviceaccounts]
  verbs: [get, create, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, create]
- apiGroups: [""]
  resources: [events]
  verbs: [list, watch, create, patch]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, create, delete]
{{- end -}}
