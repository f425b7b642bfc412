{{- /* The rules of one scope, without `scope`. Takes (dict "rules" LIST "scope" NAME). */}}
{{- define "fleetwarden.rules" -}}
{{- $scope := .scope }}
{{- range .rules }}
{{- if or (eq $scope "all") (eq .scope $scope) }}
- apiGroups: {{ toJson .apiGroups }}
  resources: {{ toJson .resources }}
  verbs: {{ toJson .verbs }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A role and its binding to the warden. Takes (dict "root" $ "name" NAME "namespace" NAMESPACE-or-empty "rules" TEXT). */}}
{{- define "fleetwarden.bound" -}}
{{- $kind := ternary "Role" "ClusterRole" (ne .namespace "") }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "fleetwarden.labels" .root | nindent 4 }}
rules: {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "fleetwarden.labels" .root | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ $kind }}, name: {{ .name | quote }}}
subjects:
  - {kind: ServiceAccount, name: {{ include "fleetwarden.serviceAccount" .root }}, namespace: {{ .root.Release.Namespace }}}
{{- end }}

{{- /* Rules bound where they must hold. Takes (dict "root" $ "part" NAME "rules" LIST). Without namespaces of the fleet all is one
ClusterRole; with them, what lies in namespaces is a Role in each. */}}
{{- define "fleetwarden.granted" -}}
{{- $root := .root }}
{{- $part := .part }}
{{- $namespaces := dig "kubernetes" "namespaces" list $root.Values.fleet }}
{{- $wide := include "fleetwarden.rules" (dict "rules" .rules "scope" (ternary "cluster" "all" (gt (len $namespaces) 0))) | trim }}
{{- if $wide }}
{{- include "fleetwarden.bound" (dict "root" $root "name" (printf "%s:%s" (include "fleetwarden.clusterName" $root) $part) "namespace" "" "rules" $wide) }}
{{- end }}
{{- $narrow := include "fleetwarden.rules" (dict "rules" .rules "scope" "namespaces") | trim }}
{{- if $narrow }}
{{- range $namespaces }}
{{ include "fleetwarden.bound" (dict "root" $root "name" (printf "%s:%s" (include "fleetwarden.clusterName" $root) $part) "namespace" . "rules" $narrow) }}
{{- end }}
{{- end }}
{{- end }}
