{{- define "pinchpoint.labels" -}}
app.kubernetes.io/name: pinchpoint
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "pinchpoint.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "pinchpoint.selector" -}}
app.kubernetes.io/name: pinchpoint
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "pinchpoint.scheme" -}}
{{ ternary "https" "http" (ne .Values.webConfigSecret "") }}
{{- end }}

{{- define "pinchpoint.judgeUrl" -}}
{{- $own := printf "%s://%s-judge.%s.svc:%v" (include "pinchpoint.scheme" .) .Release.Name .Release.Namespace .Values.judge.port -}}
{{ .Values.judge.url | default $own | trimSuffix "/" }}/
{{- end }}

{{- define "pinchpoint.probe" -}}
{{- if .Values.webConfigSecret }}
# The kubelet has neither a password nor a certificate of a client.
tcpSocket:
  port: http
{{- else }}
httpGet:
  path: /-/healthy
  port: http
{{- end }}
timeoutSeconds: 5
{{- end }}
