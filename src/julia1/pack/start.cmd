@echo off
rem Starts julia1 with the Python of this machine; set PYTHON=C:\path\to\python.exe names another. Nothing is installed.
setlocal
if defined PYTHON goto start
set "PYTHON=python"
for /f "delims=" %%p in ('py -@PYTHON@ -c "import sys; print(sys.executable)" 2^>nul') do set "PYTHON=%%p"
:start
"%PYTHON%" -I -S "%~dp0lib\julia1\pack\start.py" %*
if not errorlevel 9009 exit /b %errorlevel%
echo julia1: error: no program %PYTHON% is here: install Python @PYTHON@, or  set PYTHON=C:\path\to\python.exe >&2
exit /b 1
