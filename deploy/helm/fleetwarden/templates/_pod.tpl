{{- /* What the warden's pod and the examination's pod have in common. */}}
{{- define "fleetwarden.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "fleetwarden.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* For commands that people run in the pod: where the journal is. Paths only, no secret. */}}
{{- define "fleetwarden.environment" -}}
- {name: FLEETWARDEN_STATE_DIR, value: /var/lib/fleetwarden}
{{- if eq .Values.journal.kind "postgres" }}
- {name: FLEETWARDEN_JOURNAL__URL_FILE, value: /etc/fleetwarden/secrets/journal-url}
{{- end }}
{{- end }}

{{- define "fleetwarden.mounts" -}}
- {name: config, mountPath: /etc/fleetwarden, readOnly: true}
- {name: state, mountPath: /var/lib/fleetwarden}
- {name: temporary, mountPath: /tmp}
{{- end }}

{{- /* Settings and secrets in one projected volume, so that the settings name secrets by a path beside them. */}}
{{- define "fleetwarden.volumes" -}}
- name: config
  projected:
    defaultMode: 0440
    sources:
      - configMap:
          name: {{ include "fleetwarden.fullname" . }}
          items:
            - {key: warden.yaml, path: warden.yaml}
            - {key: fleet.yaml, path: fleet.yaml}
            {{- if .Values.detectors }}
            - {key: detectors.yaml, path: detectors.yaml}
            {{- end }}
            {{- range $name, $text := .Values.runbooks }}
            - {key: runbook-{{ $name }}.yaml, path: runbooks/{{ $name }}.yaml}
            {{- end }}
      {{- if eq .Values.journal.kind "postgres" }}
      - secret:
          name: {{ .Values.journal.postgres.secret }}
          items:
            - {key: {{ .Values.journal.postgres.key | quote }}, path: secrets/journal-url}
      {{- end }}
      {{- range .Values.secrets }}
      - secret:
          name: {{ .secret }}
          items:
            - {key: {{ .key | quote }}, path: secrets/{{ .file }}}
      {{- end }}
- name: temporary
  emptyDir: {sizeLimit: 256Mi}
{{- end }}
