{{- define "fleetwarden.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "fleetwarden.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- $name := include "fleetwarden.name" . }}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* Names of objects that belong to the whole cluster: two releases in two namespaces may bear one name. */}}
{{- define "fleetwarden.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "fleetwarden.fullname" .) }}
{{- end }}

{{- define "fleetwarden.selector" -}}
app.kubernetes.io/name: {{ include "fleetwarden.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fleetwarden.labels" -}}
{{ include "fleetwarden.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "fleetwarden.serviceAccount" -}}
{{- default (ternary (include "fleetwarden.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name }}
{{- end }}

{{- define "fleetwarden.image" -}}
{{- $repository := required "image.repository is empty: name the place to which you pushed the image (deploy/Containerfile)" .Values.image.repository }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "fleetwarden.claim" -}}
{{- default (printf "%s-journal" (include "fleetwarden.fullname" .)) .Values.journal.sqlite.existingClaim }}
{{- end }}

{{- /* What agrees only between several values. */}}
{{- define "fleetwarden.check" -}}
{{- if eq .Values.journal.kind "sqlite" }}
{{- if gt (int .Values.replicas) 1 }}
{{- fail (printf "replicas is %d and journal.kind is sqlite: replicas share their journal in PostgreSQL; set journal.kind=postgres and journal.postgres.secret, or replicas=1" (int .Values.replicas)) }}
{{- end }}
{{- else if not .Values.journal.postgres.secret }}
{{- fail "journal.postgres.secret is empty: name the Secret with the database's URL, or set replicas=1 and journal.kind=sqlite" }}
{{- end }}
{{- range .Values.secrets }}
{{- if hasPrefix "journal" .file }}
{{- fail (printf "secrets: file %q: names that begin with journal are the chart's own" .file) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* warden.yaml: the values' settings and what the chart decides. */}}
{{- define "fleetwarden.settings" -}}
{{- $own := dict "fleet" "fleet.yaml" "state_dir" "/var/lib/fleetwarden" }}
{{- $_ := set $own "http" (dict "host" "0.0.0.0" "port" 9470) }}
{{- if eq .Values.journal.kind "postgres" }}
{{- $_ := set $own "journal" (dict "url_file" "secrets/journal-url") }}
{{- $_ := set $own "election" (dict "kind" "lease" "name" (include "fleetwarden.fullname" .)) }}
{{- else }}
{{- $_ := set $own "journal" (dict "path" "/var/lib/fleetwarden/journal.sqlite") }}
{{- end }}
{{- if .Values.detectors }}
{{- $_ := set $own "detectors" "detectors.yaml" }}
{{- end }}
{{- if .Values.runbooks }}
{{- $_ := set $own "runbooks" (list "runbooks") }}
{{- end }}
{{- toYaml (mergeOverwrite (deepCopy .Values.settings) $own) }}
{{- end }}
