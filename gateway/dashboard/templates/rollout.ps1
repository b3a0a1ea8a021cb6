# Adds the winget source of this machine. Run it as SYSTEM in 64-bit PowerShell. Running it again changes nothing.

# The secret of an enrollment token.
$token = '<token>'
# The text of ca.crt, from the line BEGIN CERTIFICATE on. Leave it as it is if Windows trusts the certificate already.
$certificate = @'

'@
# $true: the source is for all users of the machine, too. $false: for SYSTEM, which includes Intune's apps.
$allUsers = $false
# $true: winget asks the source only with --source.
$explicit = $false
# A number: a higher one comes first. It needs winget 1.29 with its experimental feature sourcePriority.
$priority = $null
# $false: the public source "winget" is turned off by policy.
$defaultSource = $true

$name = '{name}'
$address = '{address}'
$identifier = '{identifier}'

$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
[Net.ServicePointManager]::SecurityProtocol = [Net.ServicePointManager]::SecurityProtocol -bor [Net.SecurityProtocolType]::Tls12
$policies = 'HKLM:\SOFTWARE\Policies\Microsoft\Windows\AppInstaller'

function Set-Policy($key, $valueName, $value) {
    if (-not (Test-Path $key)) { New-Item $key -Force | Out-Null }
    if ((Get-Item $key).GetValue($valueName) -ne $value) { Set-ItemProperty $key $valueName $value }
}

# The JSON of a response; a refusal ends the script with the reason that the server gives.
function Get-Enrollment {
    $form = @{ client_name = [Net.Dns]::GetHostName() }
    try {
        Invoke-RestMethod -Method Post -Uri "$address/enroll_client" -Headers @{ Authorization = "Bearer $token" } -Body $form -TimeoutSec 60
    } catch {
        $reason = "$_"
        try { $reason = ($_.ErrorDetails.Message | ConvertFrom-Json).detail } catch { }
        throw "The server did not enroll this machine: $reason"
    }
}

# The status with which the server answers a personal address: 401 if its token does not count any more.
function Get-Status($personal) {
    try {
        (Invoke-WebRequest -UseBasicParsing -Uri "$($personal.TrimEnd('/'))/information" -TimeoutSec 60).StatusCode
    } catch {
        if (-not $_.Exception.Response) { throw "The server does not answer: $_" }
        [int]$_.Exception.Response.StatusCode
    }
}

try {
    # Trust the certificate of the server.
    if ($certificate.Trim()) {
        $authority = New-Object Security.Cryptography.X509Certificates.X509Certificate2 -ArgumentList (, [Text.Encoding]::ASCII.GetBytes($certificate))
        $store = New-Object Security.Cryptography.X509Certificates.X509Store -ArgumentList 'Root', 'LocalMachine'
        $store.Open('ReadWrite')
        if (-not $store.Certificates.Contains($authority)) { $store.Add($authority) }
        $store.Close()
    }

    # SYSTEM has no winget in its path.
    $folders = "$env:ProgramFiles\WindowsApps\Microsoft.DesktopAppInstaller_*__8wekyb3d8bbwe"
    $programs = Get-Item "$folders\winget.exe" | Sort-Object { [version]($_.Directory.Name -split '_')[1] }
    $winget = $programs | Select-Object -Last 1 -ExpandProperty FullName
    if (-not $winget) { throw 'winget is not installed.' }

    # Keep an address that the server accepts, else enroll.
    $source = $null
    try { $source = & $winget source export --name $name --disable-interactivity | ConvertFrom-Json } catch { }
    $personal = $null
    if ($source -and "$($source.Arg)".StartsWith("$address/source/")) {
        $status = Get-Status $source.Arg
        if ($status -eq 200) { $personal = $source.Arg }
        elseif ($status -ne 401) { throw "The server answers $status." }
    }
    $isEnrolled = [bool]$personal
    if (-not $isEnrolled) { $personal = (Get-Enrollment).source_url }
    if (-not $personal) { throw 'The tenant does not offer personal addresses.' }

    # Add the source. The output of winget has the personal address, which belongs in no log.
    $isPolicy = [bool](Get-Item "$policies\AdditionalSources" -ErrorAction SilentlyContinue | Where-Object { $_.GetValue($name) })
    $isSame = $isEnrolled -and $source.TrustLevel -contains 'Trusted' -and [bool]$source.Explicit -eq $explicit -and $isPolicy -eq $allUsers
    if (-not $isSame) {
        if ($isPolicy) { Remove-ItemProperty "$policies\AdditionalSources" $name }
        if ($source) { & $winget source remove --name $name --disable-interactivity | Out-Null }
        if ($allUsers) {
            $entry = [ordered]@{ Name = $name; Arg = $personal; Type = 'Microsoft.Rest'; Data = ''; Identifier = $identifier; TrustLevel = @('Trusted'); Explicit = $explicit }
            if ($null -ne $priority) { $entry.Priority = $priority }
            Set-Policy "$policies\AdditionalSources" $name ($entry | ConvertTo-Json -Compress)
            Set-Policy $policies 'EnableAdditionalSources' 1
        } else {
            $options = @('--name', $name, '--arg', $personal, '--type', 'Microsoft.Rest', '--trust-level', 'trusted')
            if ($explicit) { $options += '--explicit' }
            if ($null -ne $priority) { $options += '--priority', "$priority" }
            & $winget source add @options --accept-source-agreements --disable-interactivity | Out-Null
            if ($LASTEXITCODE -ne 0) { throw "winget could not add the source: exit code $LASTEXITCODE." }
        }
    }
    if (-not $defaultSource) { Set-Policy $policies 'EnableDefaultSource' 0 }
    Write-Output $(if ($isSame) { 'The source is there already.' } else { 'The source was added.' })
} catch {
    Write-Output "$_"
    exit 1
}
exit 0
